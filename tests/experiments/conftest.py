"""No test here sees the user's own cache or the network; `real_data` is the folder of the published data sets."""

import os
from pathlib import Path

import pytest

from flipout.experiments import files

REAL = Path(os.environ.get(files.VARIABLE) or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.delenv(files.VARIABLE, raising=False)
    monkeypatch.setattr(files, "user_cache", lambda: folder)
    for variable in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # the discard port: no test leaves this machine
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    return folder


@pytest.fixture
def real_data(monkeypatch) -> Path:
    if not REAL.is_dir():
        pytest.skip(f"needs the published data sets: set {files.VARIABLE} to their folder (looked for ../shared/data)")
    monkeypatch.setenv(files.VARIABLE, str(REAL))
    return REAL
