"""Pruning by signal-to-noise: exactly the weights of lowest ratio, over the whole model; a curve."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flipout
from flipout import errors
from flipout.bayes import Normal, kl, predict, prune, pruning_curve, signal_to_noise
from tests.networks import TiedLM, mlp

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


def bayesian() -> Any:
    model = flipout.perturb(mlp(), flipout.MeanField(std=0.3, prior=Normal()))
    with torch.no_grad():
        model[2].weight_rho += torch.randn(3, 6)
    return model


def test_the_ratio() -> None:
    model = bayesian()
    ratios = signal_to_noise(model)
    assert set(ratios) == {"0.weight", "2.weight"}
    expected = model[2].weight.abs() / F.softplus(model[2].weight_rho)
    torch.testing.assert_close(ratios["2.weight"], expected.detach())


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.5, 1.0])
def test_the_weights_of_lowest_ratio_are_gone(fraction: float) -> None:
    model = bayesian()
    before = torch.cat([ratio.flatten() for ratio in signal_to_noise(model).values()])
    pruned = prune(model, fraction)
    weights = torch.cat([model[0].weight.flatten(), model[2].weight.flatten()]).detach()
    assert pruned.of == 42
    assert pruned.weights == int((weights == 0).sum()) == round(fraction * 42)
    assert torch.equal((weights == 0).nonzero().flatten(), before.argsort()[: pruned.weights].sort().values)
    assert pruned.threshold == pytest.approx(before.sort().values[pruned.weights - 1].item() if pruned.weights else 0.0)


def test_pruned_weights_are_gone_in_every_draw() -> None:
    model = bayesian()
    prune(model, 0.5)
    gone = model[0].weight == 0
    with flipout.hold(model, seed=1):
        model(X)
        seen = flipout.example_weights(model[0])["weight"]
    assert 0 < gone.sum() < gone.numel()
    assert seen[:, gone].abs().max() < 1e-12
    assert seen[:, ~gone].abs().min() > 1e-6
    assert kl(model).isfinite()
    plain = flipout.freeze(model)
    assert torch.equal(plain[0].weight == 0, gone)


def test_all_weights_alike() -> None:
    """Ties are broken, not pruned together."""
    model = flipout.perturb(nn.Linear(4, 5), flipout.MeanField(relative=0.1))
    pruned = prune(model, 0.25)
    assert pruned.weights == int((model.weight == 0).sum()) == 5


def test_tied_weights_and_padding() -> None:
    tied: Any = flipout.perturb(TiedLM(), flipout.MeanField(), where="*.weight")
    assert prune(tied, 0.5).of == 7 * 5 + 5 * 5
    table = flipout.perturb(nn.Embedding(6, 4, padding_idx=2), flipout.MeanField(), where="*")
    assert prune(table, 1.0).weights == 20
    assert signal_to_noise(table)["weight"][2].isinf().all()


def test_a_curve_leaves_the_model_as_it_was() -> None:
    model = bayesian()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    target = predict(model, X, 64, seed=1).mean
    seen: list[float] = []

    def error(pruned: nn.Module) -> float:
        seen.append(float((predict(pruned, X, 64, seed=1).mean - target).abs().mean()))
        return seen[-1]

    curve = pruning_curve(model, error, (0.0, 0.2, 1.0))
    assert [point.score for point in curve.points] == seen
    assert [point.weights for point in curve.points] == [0, 8, 42]
    assert seen[0] == 0.0 < seen[1] < seen[2]
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert curve.plot().axes[0].lines[0].get_ydata() == pytest.approx(seen)

    def broken(pruned: nn.Module) -> float:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        pruning_curve(model, broken, (0.5,))
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), "half", True])
def test_a_share_that_is_none_is_refused(fraction: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"fraction=.*between 0 and 1"):
        prune(bayesian(), fraction)
    with pytest.raises(errors.NotPerturbed, match="no learned spreads"):
        prune(flipout.perturb(mlp(), flipout.Gaussian(0.1)), 0.5)


def test_what_is_no_model() -> None:
    layers: Any = [bayesian()]
    for refused in (signal_to_noise, lambda model: prune(model, 0.5)):
        with pytest.raises(errors.InvalidArgument, match="a list given; expected an"):
            refused(layers)
