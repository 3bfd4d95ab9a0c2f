"""Schemes and example dimensions by glob."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

import flipout
from flipout import errors
from tests.networks import GAUSSIAN
from tests.nn.readings import IN, SERVED, N, Reader, T
from tests.zoo.oracle import weights_by_example


def test_schemes_by_glob() -> None:
    def both(m: Any, x: Tensor) -> Tensor:
        return F.linear(x.flatten(0, 1), m.bank.stacked[1]).unflatten(0, (N, T)) + m.linear(x)

    schemes: Any = {"bank.*": "shared", "*": "flipout"}
    where = ["bank.stacked", "linear.weight"]
    plain = Reader(both).double()
    model = flipout.perturb(copy.deepcopy(plain), GAUSSIAN, scheme=schemes, where=where)
    x = torch.randn(N, T, IN).double()
    with flipout.hold(model, seed=1):
        actual = model(x)
        weights = weights_by_example(model)
    assert torch.equal(weights[0]["bank.stacked"], weights[1]["bank.stacked"])
    assert not torch.equal(weights[0]["linear.weight"], weights[1]["linear.weight"])
    truth = torch.stack([functional_call(plain, row_weights, (x,))[n] for n, row_weights in enumerate(weights)])
    torch.testing.assert_close(actual, truth)


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ({"bank.*": "shared"}, r"names none for linear\."),
        ({"bnk.*": "shared", "*": "flipout"}, r"'bnk\.\*' matches none"),
        ({"linear.weight": "shared", "*": "flipout"}, r"gives linear several schemes"),
    ],
)
def test_schemes_that_do_not_fit_are_refused(scheme: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        flipout.perturb(Reader(SERVED["linear"]), GAUSSIAN, scheme=scheme, where=["linear.*", "bank.single"])


def test_an_int_for_all_layers():
    model = flipout.perturb(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), GAUSSIAN, batch_dim=1)
    with flipout.hold(model, seed=1):
        expected = model(x := torch.randn(5, 3, 4))
        assert flipout.example_weights(model[1])["weight"].shape == (3, 2, 4)
    with flipout.hold(model, seed=1, first=1):
        torch.testing.assert_close(model(x[:, 1:]), expected[:, 1:])


def test_globs_of_layers():
    model: Any = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    flipout.perturb(model, GAUSSIAN, batch_dim={"b": 1})
    x = torch.randn(5, 3, 4)
    counts = []
    for name in "ab":
        with flipout.hold(model[name]):
            model[name](x)
            counts.append(len(flipout.example_weights(model[name])["weight"]))
    assert counts == [5, 3]


@pytest.mark.parametrize(
    ("layer", "x", "where"),
    [
        (nn.Linear(4, 4), torch.randn(6, 4), None),
        (nn.LayerNorm(4), torch.randn(6, 4), "*"),
        (nn.Embedding(9, 4), torch.arange(6), "*"),
    ],
)
def test_a_dimension_that_the_input_does_not_have_is_refused(layer, x, where):
    """Otherwise the whole batch would be one example, and all rows would share a perturbation."""
    model = flipout.perturb(layer, GAUSSIAN, where=where, batch_dim=1)
    with pytest.raises(errors.InvalidInput, match=r"no dimension 1 for the example.*batch_dim"):
        model(x)


def test_a_glob_for_a_layer_with_a_fixed_layout_is_refused():
    with pytest.raises(errors.InvalidArgument, match=r"Conv2d, whose layout is \(N, C, …\)"):
        flipout.perturb(nn.Sequential(nn.Conv2d(3, 3, 1)), GAUSSIAN, batch_dim={"0": 1})
