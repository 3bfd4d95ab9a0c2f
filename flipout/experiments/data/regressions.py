"""Small regressions with fixed splits: nine sets of the UCI repository, and an embedded default."""

import io
import zipfile
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from flipout.errors import InvalidArgument

from ..extras import import_extra
from . import checksums, files

_SPLITS = 20  # of the embedded default; each holds a tenth of the rows out


@dataclass(frozen=True, eq=False)
class Regression:
    """A regression: x (rows, features) and y (rows,) in float64, and the test rows of each split.

    The other rows are the training part of a split. All splits have equally many test rows. `source` says which data
    it is.
    """

    x: Tensor
    y: Tensor
    tests: tuple[Tensor, ...]
    source: str

    def train_rows(self, split: int) -> Tensor:
        """Return the numbers of the rows that a split trains on, in rising order."""
        is_test = torch.zeros(len(self.y), dtype=torch.bool)
        is_test[self.tests[split]] = True
        return (~is_test).nonzero().flatten()


def regression(name: str, *, embedded: bool = False) -> Regression:
    """Load a regression with the splits of Hernández-Lobato and Adams (2015).

    Args:
        name: A set of the UCI repository, such as `yacht`, or `diabetes`.
        embedded: If the file is not on this machine, use `diabetes` instead.

    Returns:
        The regression, whose `source` says which data was found.

    Raises:
        InvalidArgument: There is no regression of this name.
        DataError: The file is broken, or not on this machine. Nothing is downloaded: the files with splits have no
            public address.

    Example:
        >>> from flipout.experiments import data
        >>> regression = data.regression("diabetes")
        >>> x = regression.x[regression.train_rows(0)]
    """
    if name == "diabetes":
        return diabetes()
    if name not in checksums.UCI:
        raise InvalidArgument(
            f"There is no regression called {name!r}: use one of {', '.join([*checksums.UCI, 'diabetes'])}."
        )
    data_set = checksums.UCI[name]
    contents = files.local(data_set) if embedded else files.resolve(data_set)
    if contents is None:
        default = diabetes()
        return replace(default, source=f"{default.source}, in place of {data_set.title}")
    arrays = _arrays(contents.files[0])
    x, y = (torch.from_numpy(arrays[key].astype(np.float64)) for key in ("x", "y"))
    splits = sum(key.startswith("test_") for key in arrays)
    tests = tuple(torch.from_numpy(arrays[f"test_{split}"].astype(np.int64)) for split in range(splits))
    return Regression(x, y, tests, contents.source)


def _arrays(archive: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name. Pickled ones are refused."""
    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        return {
            name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(members.read(name)))
            for name in members.namelist()
        }


def diabetes() -> Regression:
    """Load scikit-learn's diabetes: 442 patients, 10 features, with 20 random splits that hold a tenth out."""
    x, y = import_extra("sklearn.datasets", "data.diabetes", "experiments").load_diabetes(return_X_y=True)
    generator = torch.Generator().manual_seed(0)
    tests = tuple(torch.randperm(len(y), generator=generator)[: len(y) // 10] for _ in range(_SPLITS))
    source = "scikit-learn's diabetes (embedded default: not a set of the UCI benchmark)"
    return Regression(torch.from_numpy(np.asarray(x)), torch.from_numpy(np.asarray(y)), tests, source)
