"""Ratings: the synthetic ones, and the archive where it is."""

import hashlib
import io
import tarfile

import pytest
import torch

from flipout import errors
from flipout.experiments.data import checksums
from flipout.experiments.data.checksums import DataSet, File
from flipout.experiments.lora.sentiment.ratings import KINDS, padded, synthetic, vader


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_rating_is_the_sum_of_the_words() -> None:
    found = synthetic(2000, kind="tweets", noise=0.0, generator=generator())
    words = torch.stack([row[(row >= 4) & (row < 28)].sort().values for row in found.input_ids])
    assert words.shape == (2000, 2)
    assert int(words.max()) < 20  # the last eight are in the shifts alone
    one_hot = torch.zeros(2000, 24).scatter_add_(1, words - 4, torch.ones(2000, 2))
    fitted = torch.linalg.lstsq(one_hot.double(), found.rating.double().unsqueeze(1), driver="gelsd").solution
    torch.testing.assert_close((one_hot.double() @ fitted).squeeze(1), found.rating.double(), atol=1e-5, rtol=1e-5)
    noisy = synthetic(2000, kind="tweets", noise=0.5, generator=generator())
    assert not torch.equal(noisy.rating, found.rating)


def test_each_shift_has_more_unknown_words() -> None:
    shares = []
    for kind in KINDS:
        ids = synthetic(500, kind=kind, noise=0.0, generator=generator()).input_ids
        shares.append(float(((ids >= 20) & (ids < 28)).sum() / ((ids >= 4) & (ids < 28)).sum()))
    assert shares[0] == 0
    assert shares[-1] == 1
    assert shares == sorted(shares)


def test_batches_are_as_long_as_their_longest_sentence() -> None:
    found = padded([[1, 5, 6, 7], [1, 8], [1, 9, 10]], [0.5, -1.0, 2.0], "here")
    assert found.by_length().tolist() == [1, 2, 0]
    part = found[[1, 2]]
    assert part.inputs()["input_ids"].tolist() == [[1, 8, 0], [1, 9, 10]]
    assert part.inputs()["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert (part.rating.tolist(), part.items) == ([-1.0, 2.0], 2)


def words(text: str, **_: object) -> dict[str, list[int]]:
    return {"input_ids": [len(word) for word in text.split()]}


def archive(lines: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as opened:
        for kind, text in lines.items():
            info, raw = tarfile.TarInfo(checksums.RATINGS[kind]), text.encode()
            info.size = len(raw)
            opened.addfile(info, io.BytesIO(raw))
    return content.getvalue()


def test_the_archive_is_read_by_kind(tmp_path, monkeypatch) -> None:
    raw = archive({"tweets": "1\t2.5\tso good\r\n2\t-0.25\tnot\tso bad ’\r\n", "films": "1_1\t0\tA film\r\n"})
    name = "sentiment/hutto_ICWSM_2014.tar.gz"
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_bytes(raw)
    monkeypatch.setenv("FLIPOUT_DATA", str(tmp_path))
    made_here = DataSet("made here", (File(name, {"": hashlib.sha256(raw).hexdigest()}, None),))
    monkeypatch.setattr(checksums, "SENTIMENT", made_here)
    tweets, films = vader("tweets", words), vader("films", words)
    assert tweets.rating.tolist() == [2.5, -0.25]
    assert tweets.input_ids.tolist() == [[2, 4, 0, 0], [3, 2, 3, 1]]
    assert films.input_ids.tolist() == [[1, 4]]
    assert "checksums verified" in tweets.source


def test_another_archive_is_refused(tmp_path, monkeypatch) -> None:
    (tmp_path / "sentiment").mkdir()
    (tmp_path / "sentiment" / "hutto_ICWSM_2014.tar.gz").write_bytes(b"something else")
    monkeypatch.setenv("FLIPOUT_DATA", str(tmp_path))
    with pytest.raises(errors.DataError, match="is corrupt or truncated"):
        vader("tweets", words)


def test_a_missing_archive_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FLIPOUT_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(errors.DataError, match=r"hutto_ICWSM_2014\.tar\.gz; docs/data\.md"):
        vader("tweets", words)
