"""Every run draws the same examples and the same seeds: a failure is a failure for everyone."""

import gc
from pathlib import Path

import hypothesis
import pytest
import torch

from tests.captured import FakeCuda

torch.backends.cudnn.allow_tf32 = False  # single precision is compared as that, on a device too
hypothesis.settings.register_profile("flipout", deadline=None, derandomize=True, max_examples=25, print_blob=True)
hypothesis.settings.load_profile("flipout")


def pytest_collection_finish() -> None:
    """Spare the garbage collector all that was imported, which stays: a tenth of the time of the tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


# The files that take longest start first. At the end, one of them would keep a worker busy while the other is idle.
LONGEST = (
    "experiments/test_registry",
    "test_docs",
    "es/test_ray_fleet",
    "test_site",
    "experiments/running/test_runs",
    "test_compile",
    "ops/triton/test_lstm",
    "experiments/test_figures",
    "ops/triton/test_no_device",
    "scaling/test_ranks",
    "test_notebooks",
    "scaling/test_restarted",
    "test_data_parallel",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first. `make test` keeps this order."""
    root = Path(__file__).parent
    ranks = {root / f"{name}.py": rank for rank, name in enumerate(LONGEST)}
    assert all(path.exists() for path in ranks), "LONGEST names a file that is gone"
    items.sort(key=lambda item: ranks.get(item.path, len(LONGEST)))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)
