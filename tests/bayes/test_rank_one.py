"""Rank-one posteriors: covariance of the weights, KL, unbiased gradients, and the way back to torch's layers."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import bayes
from flipout.errors import InvalidArgument, LeftPlain, UnknownParameter, Unsupported
from flipout.schemes import SchemeName
from tests import many_draws
from tests.statistics import assert_covariance, assert_mean, assert_same_mean, assert_uncorrelated

SCALES = ("input_scale", "output_scale")


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def seen_weights(layer: Any, examples: int, draws: int) -> Tensor:
    """Return r ∘ W ∘ s of each example under each seed, (draws, examples, out, in)."""
    x, seeds = torch.randn(examples, layer.in_features, dtype=torch.float64), many_draws.seeds(draws)
    s, r = (many_draws.weights(layer, x, seeds, name) for name in SCALES)
    return r.unsqueeze(-1) * layer.weight.detach() * s.unsqueeze(-2)


@pytest.mark.parametrize("scheme", ["flipout", "independent", "shared"])
def test_the_covariance_of_the_weights_is_that_of_rank_one_noise(scheme: SchemeName) -> None:
    """E[r_i r_k] E[s_j s_l] − 1 for the weights (i, j) and (k, l), with r and s independent around 1."""
    layer = bayes.rank_one(network()[2], std=0.3, scheme=scheme)
    weights = seen_weights(layer, 2, 20_000)
    out, features = layer.weight.shape
    r, s = (1 + 0.3**2 * torch.eye(size, dtype=torch.float64) for size in (out, features))
    theory = torch.einsum("ik,jl->ijkl", r, s).reshape(out * features, -1) - 1
    mean = layer.weight.detach().flatten()
    assert_mean(weights[:, 0].flatten(1), mean)
    assert_covariance(weights[:, 0].flatten(1), theory * mean.outer(mean))


def test_examples_are_uncorrelated_under_flipout() -> None:
    weights = seen_weights(bayes.rank_one(network()[2], std=0.3), 2, 20_000).flatten(2)
    assert_uncorrelated(weights[:, 0], weights[:, 1])


def test_gradients_are_unbiased() -> None:
    """Flipout's gradients have the mean of those of independent weights, in every Parameter."""
    model = bayes.rank_one(network(), std=0.3)
    x = torch.randn(4, 3, dtype=torch.float64)
    flipped = many_draws.gradients(model, x, "flipout", many_draws.seeds(10_000))
    independent = many_draws.gradients(model, x, "independent", many_draws.seeds(10_000, 10_000))
    assert_same_mean(flipped, independent)


def test_the_kl_is_that_of_the_scales() -> None:
    model = bayes.rank_one(network(), std=0.2, prior=bayes.Normal(1.0, 0.1))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            nn.init.normal_(layer.get_parameter("input_scale"), 1.0, 0.3)
    q_of = torch.distributions.Normal
    expected = torch.zeros((), dtype=torch.float64)
    for layer in (model[0], model[2]):
        for name in SCALES:
            mean, std = layer.get_parameter(name), nn.functional.softplus(layer.get_parameter(f"{name}_rho"))
            expected = expected + torch.distributions.kl_divergence(q_of(mean, std), q_of(1.0, 0.1)).sum()
    torch.testing.assert_close(bayes.kl(model), expected)


def test_the_mean_is_the_plain_network() -> None:
    plain = network()
    model = bayes.rank_one(copy.deepcopy(plain)).eval()
    x = torch.randn(5, 3, dtype=torch.float64)
    assert torch.equal(model(x), plain(x))


def test_it_trains_and_predicts() -> None:
    model = bayes.rank_one(network().float())
    elbo = bayes.ELBO(model, "categorical", num_data=100)
    optimizer = torch.optim.Adam(elbo.parameters(), 0.01)
    x, y = torch.randn(32, 3), torch.randint(2, (32,))
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = elbo(x, y).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())
    assert bayes.predict(model, x, samples=16, likelihood="categorical").epistemic.min() > 0


def test_the_scales_can_be_absorbed() -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Conv2d(4, 6, 2, groups=2), nn.Flatten(), nn.Linear(24, 2)).double()
    model = bayes.rank_one(copy.deepcopy(plain))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(SCALES):
                parameter.normal_(1.0, 0.3)
    x = torch.randn(5, 4, 3, 3, dtype=torch.float64)
    expected = model.eval()(x)
    found = bayes.absorb_scales(flipout.freeze(model))
    torch.testing.assert_close(found(x), expected)
    assert [type(layer) for layer in found] == [type(layer) for layer in plain]
    assert found.state_dict().keys() == plain.state_dict().keys()


def test_weight_decay_spares_the_scales() -> None:
    model = bayes.rank_one(network())
    decayed, spared = (group["params"] for group in flipout.parameter_groups(model, weight_decay=0.1))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert {names[id(p)].rpartition(".")[2] for p in decayed} == {"weight", "bias"}
    assert len(spared) == 8


def test_refusals_leave_the_model_as_it_was() -> None:
    model = network()
    for call, error, message in (
        (lambda: bayes.rank_one(model, where="*.nothing"), UnknownParameter, "no weight of such a layer"),
        (lambda: bayes.rank_one(model, std=-1.0), InvalidArgument, "std=-1.0"),
        (lambda: bayes.rank_one(model, scheme="flipot"), InvalidArgument, "flipot"),  # pyright: ignore[reportArgumentType]
        (lambda: bayes.absorb_scales(model), InvalidArgument, "no layers with scales"),
        (lambda: bayes.absorb_scales(bayes.rank_one(network())), InvalidArgument, "has noise"),
        (lambda: bayes.rank_one(bayes.rank_one(network())), UnknownParameter, "no weight of such a layer"),
    ):
        with pytest.raises(error, match=message):
            call()
        assert [type(layer) for layer in model] == [nn.Linear, nn.Tanh, nn.Linear]
        assert set(model.state_dict()) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_a_name_that_is_taken_is_refused() -> None:
    model = network()
    model[0].input_scale = 3.0
    with pytest.raises(Unsupported, match=r"0 \(Linear\): the name input_scale is taken"):
        bayes.rank_one(model)


def test_what_is_left_out_is_named() -> None:
    model = nn.ModuleDict({"rnn": nn.LSTM(3, 4), "head": nn.Linear(4, 2)})
    with pytest.warns(LeftPlain, match="rnn.weight_ih_l0, rnn.weight_hh_l0"):
        bayes.rank_one(model)
    with pytest.raises(UnknownParameter, match=r"rnn.weight_ih_l0, .*which has no scales"):
        bayes.rank_one(nn.ModuleDict({"rnn": nn.LSTM(3, 4), "head": nn.Linear(4, 2)}), where="*weight*")
