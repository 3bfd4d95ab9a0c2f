"""The environment of a run names versions and devices."""

import pytest
import torch

from flipout.errors import InvalidArgument
from flipout.experiments.running.environment import commit, describe_environment, device_of


def test_the_environment_names_versions_and_the_device(monkeypatch):
    held = describe_environment(torch.device("cpu"))
    assert held["torch"] == torch.__version__
    assert held["device"].startswith("CPU, ")
    assert all(held[key] for key in ("flipout", "python", "numpy", "platform", "threads"))
    assert (commit() or "0").rstrip("+").isalnum()
    monkeypatch.setenv("FLIPOUT_COMMIT", "abc+")
    assert commit() == "abc+"
    monkeypatch.delenv("FLIPOUT_COMMIT")
    monkeypatch.setenv("PATH", "")  # no git
    assert commit() is None


def test_devices_are_those_that_are_here():
    assert device_of("cpu") == torch.device("cpu")
    assert device_of("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("banana", "meta", "cuda:99", "", "cpu:0"):
        with pytest.raises(InvalidArgument, match=f"--device {name}: there are auto, cpu.* here. Use --device auto"):
            device_of(name)
