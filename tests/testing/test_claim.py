"""What a claim says: the weights by brute force, and what it refuses."""

import pytest
import torch
from torch import nn

from flipout.errors import InvalidArgument
from flipout.testing import Claim
from flipout.testing._claim import tensor_of

PLAIN = nn.Linear(3, 2)


def test_weights_are_mean_plus_spread_times_noise() -> None:
    claim = Claim(PLAIN, {"weight": 2.0}, {"weight": lambda: torch.full((2, 3), 0.5)}, noise=torch.ones)
    weights = claim.draw()
    assert torch.equal(weights["weight"], torch.full((2, 3), 2.5))
    assert weights["bias"] is PLAIN.bias  # no noise, and no mean of its own
    x = torch.randn(4, 3)
    torch.testing.assert_close(claim.run(weights, x), x @ weights["weight"].T + PLAIN.bias)


def test_noise_may_differ_between_parameters() -> None:
    claim = Claim(PLAIN, {}, {"weight": 1.0, "bias": 1.0}, noise={"weight": torch.zeros, "bias": torch.ones})
    weights = claim.draw()
    assert torch.equal(weights["weight"], PLAIN.weight)
    assert torch.equal(weights["bias"], PLAIN.bias + 1)


def test_samples_carry_gradients_to_mean_and_spread() -> None:
    mean, spread = torch.zeros(2, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    Claim(PLAIN, {"weight": mean}, {"weight": spread}, noise=torch.ones).draw()["weight"].sum().backward()
    assert mean.grad is not None
    assert spread.grad is not None
    assert torch.equal(mean.grad, spread.grad)


def test_a_tied_parameter_is_one_weight() -> None:
    tied = nn.ModuleDict({"first": PLAIN, "second": PLAIN})
    claim = Claim(tied, {}, {"first.weight": 0.1})
    assert list(claim.means()) == ["first.weight", "first.bias"]
    assert list(Claim(tied, {}, {"second.weight": 0.1}).spreads()) == ["second.weight"]


def test_without_a_spread_there_is_no_distribution() -> None:
    assert not Claim().has_law
    assert not Claim(PLAIN).has_law
    assert Claim(PLAIN, spread={"weight": 0.1}).has_law


def test_the_first_tensor_of_a_tuple_is_the_output() -> None:
    y = torch.randn(2)
    assert tensor_of(((y, 3), None)) is y
    with pytest.raises(InvalidArgument, match=r"returned dict; expected a floating-point tensor"):
        tensor_of({"logits": y})
    with pytest.raises(InvalidArgument, match="returned Tensor"):
        tensor_of(torch.arange(3))


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="without plain"):
        Claim(spread={"weight": 0.1})
    with pytest.raises(InvalidArgument, match=r"plain has no Parameter 'wieght'; it has weight, bias"):
        Claim(PLAIN, spread={"wieght": 0.1})
