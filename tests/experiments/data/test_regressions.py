"""The regressions have the published sizes and splits. The embedded default says what it is."""

import pytest
import torch

from flipout.errors import DataError, InvalidArgument
from flipout.experiments import data
from flipout.experiments.data import files

SIZES = {
    "bostonHousing": (506, 13, 20),
    "concrete": (1030, 8, 20),
    "energy": (768, 8, 20),
    "kin8nm": (8192, 8, 20),
    "naval-propulsion-plant": (11934, 16, 20),
    "power-plant": (9568, 4, 20),
    "protein-tertiary-structure": (45730, 9, 5),
    "wine-quality-red": (1599, 11, 20),
    "yacht": (308, 6, 20),
}


def check_splits(regression: data.Regression) -> None:
    rows = len(regression.y)
    assert regression.x.dtype == regression.y.dtype == torch.float64
    assert len({len(test) for test in regression.tests}) == 1
    for split, test in enumerate(regression.tests):
        assert len(test.unique()) == len(test) == pytest.approx(rows / 10, abs=1)
        train = regression.train_rows(split)
        assert torch.cat((train, test)).sort().values.equal(torch.arange(rows))


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize("name", SIZES)
def test_the_published_sets(name):
    regression = data.regression(name)
    rows, features, splits = SIZES[name]
    assert (regression.x.shape, regression.y.shape) == ((rows, features), (rows,))
    assert len(regression.tests) == splits
    assert regression.source == f"UCI {name}: the folder in FLIPOUT_DATA, checksums verified"
    assert regression.x.isfinite().all()
    assert regression.y.isfinite().all()
    check_splits(regression)


def test_the_embedded_default():
    regression = data.diabetes()
    assert (regression.x.shape, len(regression.tests)) == ((442, 10), 20)
    check_splits(regression)
    again = data.regression("diabetes")
    assert all(a.equal(b) for a, b in zip(regression.tests, again.tests, strict=True))
    instead = data.regression("yacht", embedded=True)
    assert instead.source.endswith("not a set of the UCI benchmark), in place of UCI yacht")
    assert instead.y.equal(regression.y)


def test_a_set_that_is_not_here_is_refused_without_a_download():
    with pytest.raises(DataError, match=r"UCI yacht is not on this machine.*uci/yacht.npz.*set FLIPOUT_DATA"):
        data.regression("yacht")


def test_a_file_that_is_broken_is_refused(tmp_path, monkeypatch):
    (tmp_path / "uci").mkdir()
    (tmp_path / "uci" / "yacht.npz").write_bytes(b"PK\x03\x04")
    monkeypatch.setenv(files.VARIABLE, str(tmp_path))
    with pytest.raises(DataError, match=r"yacht.npz is corrupt or truncated"):
        data.regression("yacht", embedded=True)


def test_an_unknown_name_is_refused():
    with pytest.raises(InvalidArgument, match=r"no regression called 'boston': use one of bostonHousing.*diabetes"):
        data.regression("boston")
