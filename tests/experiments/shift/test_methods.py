"""Methods predict with trained networks, in single precision and in bf16."""

from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor

from flipout.experiments import data
from flipout.experiments.shift import methods, training
from flipout.experiments.shift.methods import ShiftMethod
from flipout.experiments.shift.training import ShiftTraining
from flipout.experiments.training.supervised import Prepared

CONFIG = ShiftTraining(width=2, blocks=1, epochs=1, bayes_epochs=1, batch=128, rate=0.5, moved=True)


@pytest.fixture
def prepared() -> Prepared:
    digits = data.digits()
    x = data.standardised(digits.x_train[:256])
    return Prepared(x, digits.y_train[:256], x[:0], digits.y_test, 10, digits.source)


def pictures(prepared: Prepared) -> Tensor:
    return prepared.x[:50]


def found(prepared: Prepared, run) -> dict[str, ShiftMethod]:
    return methods.all_methods(CONFIG, 2, 4, prepared, run)


def test_every_method_gives_probabilities(prepared, run):
    tried = found(prepared, run)
    for name, members in {"plain": 1, "dropout": 1, "flipout": 1, "ensemble": 2}.items():
        probabilities = tried[name].predict(CONFIG, pictures(prepared))
        assert probabilities.shape == (members, 50, 10)
        assert probabilities.dtype == torch.float32
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(members, 50))
        assert not probabilities.requires_grad
    first = tried["ensemble"].predict(CONFIG, pictures(prepared))[:1]
    assert torch.equal(tried["plain"].predict(CONFIG, pictures(prepared)), first)


@pytest.mark.parametrize("name", ["dropout", "flipout"])
def test_passes_differ_and_are_averaged(name, prepared, run):
    tried, x = found(prepared, run)[name], pictures(prepared)
    torch.manual_seed(0)
    once = tried.predict(CONFIG, x)
    assert not torch.equal(tried.predict(CONFIG, x), once)
    torch.manual_seed(0)
    assert torch.equal(tried.predict(CONFIG, x), once)


def test_parts_of_the_pictures_change_nothing(prepared, run, monkeypatch):
    tried, x = found(prepared, run), pictures(prepared)
    torch.manual_seed(0)
    whole = {name: tried[name].predict(CONFIG, x) for name in ("plain", "flipout")}
    monkeypatch.setattr(methods, "_ROWS", 7)
    torch.manual_seed(0)
    for name, expected in whole.items():
        torch.testing.assert_close(tried[name].predict(CONFIG, x), expected)


def test_bf16_trains_and_predicts_in_bf16(prepared, run, monkeypatch):
    """On a GPU everything runs under autocast. A CPU has autocast too."""

    def on_cpu(config: ShiftTraining, device: torch.device) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16, cache_enabled=False)

    monkeypatch.setattr(training, "autocast", on_cpu)
    monkeypatch.setattr(methods, "autocast", on_cpu)
    rounded = {name: method.predict(CONFIG, pictures(prepared)) for name, method in found(prepared, run).items()}
    monkeypatch.undo()
    assert all(value.dtype == torch.float32 for value in run.read_tensors("network.flipout").values() if value.dim())
    exact = found(prepared, run)["plain"].predict(CONFIG, pictures(prepared))
    assert not torch.equal(rounded["plain"], exact)
    torch.testing.assert_close(rounded["plain"], exact, rtol=0.1, atol=0.02)
    for probabilities in rounded.values():
        assert probabilities.dtype == torch.float32
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(probabilities.shape[:2]))


def test_trained_networks_are_not_trained_again(prepared, run, monkeypatch):
    found(prepared, run)
    monkeypatch.setattr(methods, "train_plain", None)
    monkeypatch.setattr(methods, "train_posterior", None)
    assert set(found(prepared, run)) == {"plain", "dropout", "flipout", "ensemble"}
