"""Priors stored beside the Parameters: `torch.distributions` as priors, `state_dict`, `perturb` and `freeze`."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
import torch.distributions as td
from torch import Tensor, nn

import flipout
from flipout.bayes import Laplace, LogUniform, Normal, ScaleMixture
from flipout.distributions.prior import ClosedForm, Sampled, prior_of
from flipout.errors import InvalidArgument
from tests.networks import TiedLM, encoder, mlp

PRIORS = {
    "normal": Normal(0.1, 0.7),
    "learned normal": Normal(0.1, 0.7, learn_scale=True),
    "laplace": Laplace(0.0, 0.3),
    "mixture": ScaleMixture(0.3, 1.0, 0.01),
    "learned mixture": ScaleMixture(0.3, 1.0, 0.01, learn_scale=True),
    "log-uniform": LogUniform(),
    "torch": td.StudentT(3.0, 0.0, 0.5),
    "torch mixture": td.MixtureSameFamily(
        td.Categorical(torch.tensor([0.2, 0.8])), td.Normal(torch.zeros(2), torch.tensor([1.0, 0.1]))
    ),
}
OTHERS = {  # the same kinds with other numbers
    "normal": Normal(0.3, 2.0),
    "learned normal": Normal(0.3, 2.0, learn_scale=True),
    "laplace": Laplace(0.4, 5.0),
    "mixture": ScaleMixture(0.8, 3.0, 0.2),
    "learned mixture": ScaleMixture(0.8, 3.0, 0.2, learn_scale=True),
    "log-uniform": LogUniform(),
    "torch": td.StudentT(9.0, 0.4, 1.5),
    "torch mixture": td.MixtureSameFamily(
        td.Categorical(torch.tensor([0.7, 0.3])), td.Normal(torch.ones(2), torch.tensor([3.0, 2.0]))
    ),
}


def bayesian(prior: Any, model: Any = None, **options: Any) -> Any:
    return flipout.perturb(mlp() if model is None else model, flipout.MeanField(prior=prior, **options))


def divergence(model: nn.Module) -> Tensor:
    with flipout.hold(model, seed=3):
        return flipout.bayes.kl(model).detach()


@pytest.mark.parametrize("name", PRIORS)
def test_a_saved_model_keeps_its_prior(name: str) -> None:
    saved, loaded = bayesian(PRIORS[name], std=0.2), bayesian(OTHERS[name], std=0.3)
    assert not torch.equal(divergence(saved), divergence(loaded))
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(divergence(loaded), divergence(saved))
    assert torch.equal(divergence(copy.deepcopy(saved)), divergence(saved))
    assert torch.equal(divergence(pickle.loads(pickle.dumps(saved))), divergence(saved))


def test_the_numbers_are_buffers_and_learned_scales_are_parameters() -> None:
    fixed, learned = bayesian(Normal(0.1, 0.7)), bayesian(Normal(0.1, 0.7, learn_scale=True))
    assert {n for n, _ in fixed.named_buffers()} == {f"{i}.weight_prior_{n}" for i in (0, 2) for n in ("mean", "std")}
    assert {n for n, _ in learned.named_buffers()} == {"0.weight_prior_mean", "2.weight_prior_mean"}
    assert [n for n, _ in learned.named_parameters() if "prior" in n] == [
        "0.weight_prior_log_std",
        "2.weight_prior_log_std",
    ]
    torch.testing.assert_close(learned[0].weight_prior_log_std.exp(), torch.tensor(0.7))


@pytest.mark.parametrize("name", PRIORS)
def test_a_plain_checkpoint_loads_and_the_prior_keeps_its_numbers(name: str) -> None:
    model, plain = bayesian(PRIORS[name]), mlp()
    before = {key: value.clone() for key, value in model.state_dict().items() if key not in plain.state_dict()}
    model.load_state_dict(plain.state_dict())
    assert torch.equal(model[0].weight, plain[0].weight)
    assert before.keys() >= {"0.weight_rho", "2.weight_rho"}
    assert all(torch.equal(model.state_dict()[key], value) for key, value in before.items())


def test_a_checkpoint_of_a_mean_field_without_prior_loads_into_both() -> None:
    source = bayesian(None, std=0.3)
    assert all(key.endswith(("weight", "bias", "rho")) for key in source.state_dict())
    for model in (bayesian(None), bayesian(Normal(0.1, 0.7))):
        model.load_state_dict(source.state_dict())
        torch.testing.assert_close(model[0].weight_rho, source[0].weight_rho, rtol=0, atol=0)


@pytest.mark.parametrize("other", ["learned normal", "laplace", "mixture", "torch"])
def test_a_checkpoint_of_another_prior_is_refused(other: str) -> None:
    with pytest.raises(RuntimeError, match=r"Unexpected key.*prior_std"):
        bayesian(PRIORS[other]).load_state_dict(bayesian(PRIORS["normal"]).state_dict())
    with pytest.raises(RuntimeError, match=r"Unexpected key.*prior_std"):
        bayesian(None).load_state_dict(bayesian(PRIORS["normal"]).state_dict())


@pytest.mark.parametrize("make", [mlp, TiedLM, encoder, lambda: nn.LSTM(3, 4, 2, bidirectional=True)])
@pytest.mark.parametrize("name", ["learned normal", "mixture"])
def test_freeze_removes_the_prior(make: Any, name: str) -> None:
    plain = make()
    keys = list(plain.state_dict())
    model = flipout.perturb(plain, flipout.MeanField(prior=PRIORS[name]))
    assert len(model.state_dict()) > len(keys)
    assert list(flipout.freeze(model).state_dict()) == keys


@pytest.mark.parametrize("make", [lambda: nn.LSTM(3, 4), lambda: nn.Linear(3, 4), lambda: nn.GRUCell(3, 4)])
def test_reset_parameters_resets_the_spread_and_the_prior(make: Any) -> None:
    model: Any = flipout.perturb(make(), flipout.MeanField(std=0.3, prior=Normal(0.0, 2.0, learn_scale=True)))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        for value in model.state_dict().values():
            value.add_(1)
    model.reset_parameters()
    kept = {key for key, value in model.state_dict().items() if torch.equal(value, before[key])}
    assert kept == {key for key in before if "rho" in key or "prior" in key}


def test_learned_priors_are_never_perturbed() -> None:
    model = bayesian(Normal(0.0, 1.0, learn_scale=True))
    flipout.perturb(model, flipout.Gaussian(0.1), where="*.bias")
    noisy = {row.parameter for row in flipout.summary(model).rows if row.noise}
    assert noisy == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_tied_weights_have_one_prior() -> None:
    model: Any = flipout.perturb(
        TiedLM(), flipout.MeanField(prior=Normal(0.0, 1.0, learn_scale=True)), where="decoder.weight"
    )
    assert model.decoder.weight_prior_log_std is model.embedding.weight_prior_log_std
    assert sum("prior" in name for name, _ in model.named_parameters()) == 1


@pytest.mark.parametrize("name", PRIORS)
def test_moving_a_model_moves_its_prior(name: str) -> None:
    model = bayesian(PRIORS[name], std=0.2)
    before = divergence(model)
    assert divergence(model.double()).dtype == torch.float64
    torch.testing.assert_close(divergence(model).float(), before, rtol=1e-4, atol=0)


def test_priors_by_name() -> None:
    priors = {"*.bias": Laplace(0.0, 3.0), "0.*": Normal(0.0, 0.5), "*": td.Cauchy(0.0, 1.0)}
    model = flipout.perturb(mlp(), flipout.MeanField(prior=priors), where="*")
    rows = {row.parameter: row.kl for row in flipout.summary(model).rows if row.noise}
    assert rows == {
        "0.weight": "closed form",
        "0.bias": "closed form",
        "2.weight": "Monte Carlo",
        "2.bias": "closed form",
    }
    assert float(model[0].weight_prior_std) == 0.5
    assert float(model[2].bias_prior_scale) == 3.0
    assert "KL" in str(flipout.summary(model)).splitlines()[0]
    with pytest.raises(InvalidArgument, match=r"MeanField\(prior=\{…\}\): no pattern of \['0.\*'\] matches.*2.weight"):
        bayesian({"0.*": Normal()})


def test_a_prior_around_the_weights_of_a_trained_net() -> None:
    """As in MOPED: the prior is centred on the trained weights, and the spread is relative to them."""
    plain = mlp()
    centred = {name: Normal(p, 1.0) for name, p in plain.named_parameters()}
    model = flipout.perturb(plain, flipout.MeanField(relative=0.1, prior=centred))
    with torch.no_grad():
        model[0].weight += 3.0
    assert torch.equal(model[0].weight_prior_mean + 3.0, model[0].weight)
    std = nn.functional.softplus(model[2].weight_rho)
    torch.testing.assert_close(std, 0.1 * model[2].weight.abs().clamp_min(1e-5))


@pytest.mark.parametrize(
    ("distribution", "kind", "text"),
    [
        (td.Normal(0.1, 1.0), ClosedForm, "Normal(loc=0.1, scale=1.0)"),
        (td.Laplace(0.0, 1.0), ClosedForm, "Laplace(loc=0.0, scale=1.0)"),
        (td.Cauchy(0.0, torch.ones(4, 1)), Sampled, "Cauchy(loc=<4×1 tensor>, scale=<4×1 tensor>)"),
        (td.StudentT(3.0), Sampled, "StudentT(df=3.0, loc=0.0, scale=1.0)"),
        (
            PRIORS["torch mixture"],
            Sampled,
            "MixtureSameFamily(mixture_logits=<2 tensor>, component_loc=<2 tensor>, component_scale=<2 tensor>)",
        ),
    ],
    ids=str,
)
def test_torch_distributions(distribution: td.Distribution, kind: type, text: str) -> None:
    prior = prior_of(distribution)
    assert isinstance(prior, kind)
    assert repr(prior) == text
    w = torch.linspace(-2, 2, 9)
    if isinstance(prior, Sampled):
        torch.testing.assert_close(prior.log_prob(w, prior.numbers()), distribution.log_prob(w))
    elif isinstance(prior, ClosedForm):
        q = td.Normal(w, 0.3)
        torch.testing.assert_close(prior.kl(q.mean, q.stddev, prior.numbers()), td.kl_divergence(q, distribution))


class Odd(td.Normal):
    """A distribution that cannot be rebuilt from its arguments."""

    def __init__(self, centre: float) -> None:
        super().__init__(centre, 1.0)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (1.0, r"prior=1.0: expected a prior such as flipout.bayes.Normal"),
        (Normal, "expected a prior such as"),
        ({"*": "normal"}, "prior='normal': expected a prior"),
        ({"*": None}, "prior=None: expected a prior"),
        (td.Independent(td.Normal(torch.zeros(3), torch.ones(3)), 1), r"over vectors of shape \(3,\)"),
        (td.HalfNormal(1.0), "the KL would be infinite"),
        (td.Uniform(-1.0, 1.0), "the KL would be infinite"),
        (td.Bernoulli(0.5), "the KL would be infinite"),
        (Odd(0.0), "cannot be rebuilt from its arguments"),
        (td.TransformedDistribution(td.Normal(0.0, 1.0), td.AffineTransform(0.0, 2.0)), "cannot be rebuilt"),
    ],
    ids=str,
)
def test_a_bad_prior_is_refused(prior: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        flipout.MeanField(prior=prior)


def test_a_prior_of_the_wrong_shape_is_refused_and_nothing_is_converted() -> None:
    model = mlp()
    with pytest.raises(InvalidArgument, match=r"0.weight: prior of shape \(5,\) given; .* Parameter's \(6, 4\)"):
        bayesian(Normal(torch.zeros(5), 1.0), model)
    assert type(model[0]) is nn.Linear
    with pytest.raises(InvalidArgument, match=r"Linear.weight: prior of shape \(2, 3, 4\)"):
        flipout.nn.Linear(4, 3, distribution=flipout.MeanField(prior=Normal(torch.zeros(2, 3, 4))))
    assert bayesian(Normal(0.0, torch.ones(1, 1))) is not None


@pytest.mark.parametrize("prior", [Normal(learn_scale=True), Normal(), ScaleMixture(learn_scale=True), LogUniform()])
def test_the_names_of_its_numbers_can_be_read_back(prior: Any) -> None:
    suffixes = {number: prior.suffix_of(number) for number in prior.numbers()}
    assert {number: prior.number_of(suffix) for number, suffix in suffixes.items()} == {n: n for n in suffixes}
    saved = flipout.nn.Linear(2, 3, distribution=flipout.MeanField(prior=prior)).state_dict()
    assert saved.keys() == {"weight", "bias", "weight_rho", *(f"weight_{suffix}" for suffix in suffixes.values())}
