"""The functions and what they return, refuse and leave alone."""

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import testing
from flipout.errors import InvalidArgument, NonFinite, NotPerturbed

from . import wrong_layers as wrong

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))


def test_a_black_box_without_a_claim() -> None:
    """Enough to see one weight per example, independence and fresh noise; the rest says what it lacks."""
    layer = wrong.linear(wrong.Right)
    report = testing.check(lambda x: layer(x), X, positions=(1,), draws=200)
    assert report.names("passed") == ["fresh noise", "one weight per example", "independent examples"]
    assert not report.names("failed")
    assert all("Give " in check.sentence for check in report if check.outcome == "not applicable")
    wrong_layer = wrong.linear(wrong.SignsPerPosition)
    assert testing.check(wrong_layer, X, positions=(1,), draws=200).names("failed") == ["one weight per example"]
    shared = nn.Linear(5, 4)
    report = testing.check(lambda x: shared(x) + x @ torch.randn(5, 4), X, positions=(1,), draws=200)
    assert report.names("failed") == ["independent examples"]


def test_a_report_prints_and_looks_up() -> None:
    layer = wrong.linear(wrong.NoiseInEval)
    report = testing.check(layer, X, draws=100, only=["fresh noise", "no noise when disabled", "KL counted once"])
    lines = str(report).splitlines()
    assert lines[0].split()[:4] == ["check", "outcome", "seen", "expected"]
    assert [line.split("  ")[0] for line in lines[1:]] == [check.name for check in report]
    assert repr(report) == "Report(1 passed, 1 failed, 1 not applicable)"
    assert repr(report["KL counted once"]) == "Check(KL counted once: not applicable)"
    assert repr(report["fresh noise"]) == "Check(fresh noise: passed, seen 1, expected 1)"
    assert len(report) == 3
    assert not report.conforms
    with pytest.raises(InvalidArgument, match="'fresh noise'"):
        report["another"]


def test_an_assertion_lists_the_failures() -> None:
    layer = wrong.linear(wrong.NoiseInEval)
    with pytest.raises(AssertionError, match=r"1 of 11 checks.*\n  no noise when disabled: failed\. In eval"):
        testing.assert_conforms(layer, X, layer.claim, draws=100)
    assert testing.assert_conforms(layer, X, layer.claim, only=["fresh noise"]).conforms
    with pytest.raises(AssertionError, match=r"KL counted once: not applicable\. Give a Claim with kl"):
        testing.assert_conforms(layer, X, layer.claim, only=["KL counted once"])


def test_generator_and_modes_are_left_alone_and_a_seed_repeats() -> None:
    layer = wrong.linear(wrong.Right).eval()
    state = torch.get_rng_state()
    first, second, other = (
        testing.check(layer, X, layer.claim, draws=100, seed=seed, only=["spread of the weights"]) for seed in (5, 5, 6)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert first.checks == second.checks != other.checks
    assert not layer.training
    assert layer.weight.grad is None


def test_false_alarms_are_as_rare_as_stated() -> None:
    """Three of the checks have 3/11 of the error rate. More than 30 alarms in 60 reports then have probability 5e-5."""
    layer = wrong.linear(wrong.Right)
    names = ["mean of the weights", "spread of the weights", "independent examples"]
    reports = [
        testing.check(layer, X[:, 0], layer.claim, draws=100, seed=seed, error_rate=0.9, only=names)
        for seed in range(60)
    ]
    assert {check.error_rate for report in reports for check in report} == {0.9 / len(testing.CHECKS)}
    assert sum(not report.conforms for report in reports) <= 30


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 0


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((3, X), {}, InvalidArgument, "the layer is 3"),
        ((torch.relu, 3), {}, InvalidArgument, "x is 3"),
        ((torch.relu, torch.tensor(1.0)), {}, InvalidArgument, "dimension 0 is the example"),
        ((torch.relu, X), {"draws": 10}, InvalidArgument, "≥ 100"),
        ((torch.relu, X), {"error_rate": 1}, InvalidArgument, "between 0 and 1"),
        ((torch.relu, X), {"only": ["kl"]}, InvalidArgument, "'KL counted once'"),
        ((torch.relu, X), {"positions": (0,)}, InvalidArgument, "dimension 0 is the example"),
        ((lambda x: {"y": x}, X), {}, InvalidArgument, "returned dict"),
        ((Broken(), X), {}, NonFinite, "NaN or infinite"),
    ],
)
def test_bad_input_is_refused(arguments, options, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        testing.check(*arguments, **options)


def test_bad_claims_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="no Parameter 'kernel'; it has weight, bias"):
        testing.Claim(nn.Linear(2, 2), spread={"kernel": 0.1})
    with pytest.raises(InvalidArgument, match="without plain"):
        testing.Claim(spread={"weight": 0.1})
    with pytest.raises(NotPerturbed):
        testing.claim_of(nn.Linear(2, 2))
    assert testing is flipout.testing
