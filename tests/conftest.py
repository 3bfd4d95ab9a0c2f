"""Every run draws the same examples and the same seeds: a failure is a failure for everyone."""

import gc

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


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)
