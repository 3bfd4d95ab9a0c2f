"""kl(): the exact sum, every Parameter once, right in every dtype, differentiable; Monte Carlo on the held draw."""

import copy
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributions as td
import torch.nn.functional as F
from torch import Tensor, nn

import flipout
from flipout import errors
from flipout.bayes import Laplace, LogUniform, Normal, Sampled, ScaleMixture, kl, kl_terms
from tests import many_draws
from tests.networks import Shared, Siamese, TiedLM, convnet, encoder, mlp
from tests.statistics import assert_mean

PRIOR = Normal(0.1, 0.7)


@dataclass(frozen=True)
class SampledNormal(Sampled):
    """A prior whose KL is known, but not said."""

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def learned(self) -> tuple[str, ...]:
        return ()

    def numbers(self) -> dict[str, Tensor]:
        return {"mean": torch.tensor(0.1), "std": torch.tensor(0.7)}

    def log_prob(self, weight: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        return td.Normal(numbers["mean"], numbers["std"]).log_prob(weight)


def by_hand(model: nn.Module, prior: td.Distribution) -> Tensor:
    """torch.distributions, over the Parameters that have a spread beside them, in float64."""
    named = dict(model.named_parameters())
    total = torch.zeros((), dtype=torch.float64)
    for name, parameter in named.items():
        if f"{name}_rho" in named:
            q = td.Normal(parameter.double(), F.softplus(named[f"{name}_rho"].double()))
            total = total + td.kl_divergence(q, prior).sum()
    return total


MODELS: dict[str, tuple[Any, Any]] = {
    "mlp": (mlp, None),
    "biases too": (mlp, "*"),
    "convolutions and norms": (convnet, "*"),
    "transformer": (encoder, "*"),
    "tied": (TiedLM, "*"),
    "a layer called twice": (Siamese, None),
    "a layer under two parents": (Shared, None),
    "lstm": (lambda: nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2), "*"),
    "cell": (lambda: nn.GRUCell(3, 4), "*"),
    "embedding": (lambda: nn.Embedding(7, 5), "*"),
    "one weight": (lambda: nn.Linear(1, 1, bias=False), None),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_exact_sum_over_all_weights(name: str) -> None:
    make, where = MODELS[name]
    model = flipout.perturb(make().double(), flipout.MeanField(std=0.3, prior=PRIOR), where=where)
    torch.testing.assert_close(kl(model), by_hand(model, td.Normal(0.1, 0.7)), rtol=1e-6, atol=0)
    terms = kl_terms(model)
    assert set(terms) == {n for n, _ in model.named_parameters() if f"{n}_rho" in dict(model.named_parameters())}
    torch.testing.assert_close(kl(model), torch.stack(list(terms.values())).sum(), rtol=1e-12, atol=0)


def test_neither_calls_nor_time_steps_nor_the_batch_change_it() -> None:
    model = flipout.perturb(nn.LSTM(3, 4), flipout.MeanField(prior=PRIOR))
    before = kl(model)
    for time, rows in ((1, 2), (9, 5)):
        model(torch.randn(time, rows, 3))
        assert torch.equal(kl(model), before)
    with flipout.hold(model, first=3, group=2), flipout.using(model, scheme="shared"):
        assert torch.equal(kl(model.eval()), before)


def test_tied_weights_count_once() -> None:
    model: Any = flipout.perturb(TiedLM(), flipout.MeanField(std=0.3, prior=PRIOR), where="embedding.weight")
    alone = flipout.nn.Linear(5, 7, bias=False, distribution=flipout.MeanField(std=0.3, prior=PRIOR))
    alone.weight = model.embedding.weight
    torch.testing.assert_close(kl(model), kl(alone))
    assert list(kl_terms(model)) == ["embedding.weight"]


def test_one_weight_with_two_spreads_has_no_posterior() -> None:
    first, second = (flipout.nn.Linear(3, 3, distribution=flipout.MeanField(prior=PRIOR)) for _ in range(2))
    second.weight = first.weight
    with pytest.raises(
        errors.InvalidArgument, match=r"0.weight and 1.weight are one Parameter with two learned spreads"
    ):
        kl(nn.Sequential(first, second))


def test_several_roots() -> None:
    parts = [flipout.perturb(mlp(), flipout.MeanField(std=std, prior=PRIOR)) for std in (0.1, 0.2)]
    torch.testing.assert_close(kl(nn.Sequential(*parts)), kl(parts[0]) + kl(parts[1]))
    by_hand_too = flipout.nn.Linear(3, 4, distribution=flipout.MeanField(prior=ScaleMixture()))
    whole = nn.Sequential(*parts, by_hand_too)
    with flipout.hold(whole, seed=3):
        torch.testing.assert_close(kl(whole), kl(parts[0]) + kl(parts[1]) + kl(by_hand_too))
    assert kl(whole).isfinite()


def test_a_padding_row_has_no_posterior() -> None:
    """It is never perturbed nor trained."""
    for prior in (PRIOR, SampledNormal()):
        plain = nn.Embedding(6, 4, padding_idx=2)
        model: Any = flipout.perturb(plain, flipout.MeanField(std=0.3, prior=prior), where="*")
        with torch.no_grad():
            model.weight[2] = 1e3
        full: Any = flipout.perturb(nn.Embedding(5, 4), flipout.MeanField(std=0.3, prior=PRIOR), where="*")
        with torch.no_grad():
            full.weight.copy_(model.weight[[0, 1, 3, 4, 5]])
        if prior is PRIOR:
            torch.testing.assert_close(kl(model), kl(full))
        (gradient,) = torch.autograd.grad(kl(model), model.weight)
        assert not gradient[2].any()
        assert gradient[3].any()


def test_the_gradient_is_the_analytic_one() -> None:
    """Of N(W̄, softplus(ρ)²) from N(m, s²): (W̄ − m) / s², and (σ / s² − 1 / σ) · sigmoid(ρ)."""
    model: Any = flipout.perturb(nn.Linear(4, 3).double(), flipout.MeanField(std=0.3, prior=Normal(0.1, 0.7)))
    with torch.no_grad():
        model.weight_rho += torch.randn(3, 4)
    mean, rho = torch.autograd.grad(kl(model), (model.weight, model.weight_rho))
    m, s = model.weight_prior_mean, model.weight_prior_std
    sigma = F.softplus(model.weight_rho)
    torch.testing.assert_close(mean, (model.weight - m) / s**2, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        rho, (sigma / s**2 - 1 / sigma) * torch.sigmoid(model.weight_rho), rtol=1e-10, atol=1e-12
    )


def test_buffers_may_be_written_before_backward() -> None:
    """As DistributedDataParallel does at every forward pass."""
    model: Any = flipout.perturb(nn.Linear(4, 3), flipout.MeanField(prior=PRIOR))
    divergence, before = kl(model), torch.autograd.grad(kl(model), model.weight)
    for buffer in model.buffers():
        buffer.mul_(2)
    torch.testing.assert_close(torch.autograd.grad(divergence, model.weight), before)
    assert not torch.equal(kl(model), divergence)


@pytest.mark.parametrize(
    "prior",
    [
        Normal(0.1, 0.7, learn_scale=True),
        Laplace(0.1, 0.7, learn_scale=True),
        ScaleMixture(0.3, 1.0, 0.1, learn_scale=True),
        LogUniform(),
        td.StudentT(3.0),
        td.Gumbel(0.0, 1.0),
    ],
    ids=str,
)
def test_gradients_of_every_prior(prior: Any) -> None:
    """Finite differences in means, spreads and learned scales, with the draw held."""
    model: Any = flipout.perturb(nn.Linear(3, 2).double(), flipout.MeanField(std=0.3, prior=prior), where="*")
    names = [name for name, _ in model.named_parameters()]

    def value(*parameters: Tensor) -> Tensor:
        named = {f"model.{name}": parameter for name, parameter in zip(names, parameters, strict=True)}
        with flipout.hold(model, seed=1):
            return torch.func.functional_call(_KL(model), named, ())

    learned = 2 * len(getattr(prior, "scales", ())) * getattr(prior, "learn_scale", False)
    assert len(names) == 4 + learned
    assert torch.autograd.gradcheck(value, tuple(p.detach().requires_grad_() for p in model.parameters()))


def test_a_learned_scale_finds_the_best_prior() -> None:
    """dKL/d log s = Σ 1 − (σ² + (W̄ − m)²) / s², which is 0 where s² is the second moment of the posterior."""
    prior = Normal(0.1, 0.7, learn_scale=True)
    model: Any = flipout.perturb(nn.Linear(4, 3).double(), flipout.MeanField(std=0.3, prior=prior))
    moment = F.softplus(model.weight_rho) ** 2 + (model.weight - model.weight_prior_mean) ** 2
    (gradient,) = torch.autograd.grad(kl(model), model.weight_prior_log_std)
    expected = (1 - moment / torch.exp(2 * model.weight_prior_log_std)).sum()
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        model.weight_prior_log_std.copy_(moment.mean().log() / 2)
    (gradient,) = torch.autograd.grad(kl(model), model.weight_prior_log_std)
    assert abs(float(gradient)) < 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("prior", [PRIOR, LogUniform(), ScaleMixture(0.5, 1.0, 0.1)], ids=str)
def test_half_precision_parameters_have_a_kl_in_single_precision(dtype: torch.dtype, prior: Any) -> None:
    """200,000 weights: a sum in half precision would be off by percents, and each term too."""
    model: Any = flipout.perturb(nn.Linear(500, 400), flipout.MeanField(relative=0.3, prior=prior)).to(dtype)
    exact = copy.deepcopy(model).double()
    with flipout.hold(model, seed=1):
        divergence = kl(model)
    with flipout.hold(exact, seed=1):
        truth = kl(exact)
    assert divergence.dtype == torch.float32
    assert truth.dtype == torch.float64
    torch.testing.assert_close(divergence.double(), truth, rtol=3e-6, atol=0)
    divergence.backward()
    assert model.weight_rho.grad.dtype == dtype
    assert model.weight_rho.grad.isfinite().all()


def test_inside_autocast() -> None:
    model = flipout.perturb(mlp(), flipout.MeanField(prior=PRIOR))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(kl(model), kl(model))
        divergence = kl(model)
    torch.testing.assert_close(divergence, kl(model), rtol=1e-6, atol=0)


def sampled(scheme: Any = "flipout") -> Any:
    return flipout.perturb(nn.Linear(5, 4).double(), flipout.MeanField(std=0.4, prior=SampledNormal()), scheme=scheme)


def test_monte_carlo_is_unbiased() -> None:
    """Value and gradients, over seeds, against the closed form of the same prior."""
    model = sampled()

    def estimate(parameters: dict[str, Tensor], seed: Tensor) -> Tensor:
        with flipout.hold(model, seed=seed):
            return torch.func.functional_call(_KL(model), {f"model.{n}": p for n, p in parameters.items()}, ())

    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    both = torch.func.vmap(torch.func.grad_and_value(estimate), (None, 0))(parameters, many_draws.seeds(4000))
    gradients, values = both
    exact = by_hand(model, td.Normal(0.1, 0.7))
    names = ["weight", "weight_rho"]
    truth = torch.autograd.grad(exact, [model.get_parameter(name) for name in names])
    assert_mean(values, exact)
    for name, expected in zip(names, truth, strict=True):
        assert_mean(gradients[name], expected, std=None)


class _KL(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> Tensor:
        return kl(self.model)


@pytest.mark.parametrize("scheme", ["shared", "flipout", flipout.Flipout(group=2), "independent"], ids=str)
def test_monte_carlo_sees_the_weights_of_the_held_pass(scheme: Any) -> None:
    """Those of the first example, averaged over the two signs of every weight; log q in closed form."""
    model = sampled(scheme)
    with flipout.hold(model, seed=2):
        model(torch.randn(3, 5, dtype=torch.float64))
        delta = flipout.example_weights(model)["weight"][0] - model.weight
        divergence = kl(model)
        assert torch.equal(kl(model), divergence)
    prior, std = td.Normal(0.1, 0.7), F.softplus(model.weight_rho)
    log_prior = (prior.log_prob(model.weight + delta) + prior.log_prob(model.weight - delta)) / 2
    expected = (-log_prior - td.Normal(0.0, std).entropy()).sum()
    torch.testing.assert_close(divergence, expected, rtol=1e-6, atol=0)
    assert not torch.equal(kl(model), kl(model))  # outside of hold: fresh draws


def test_monte_carlo_under_local_reparameterisation() -> None:
    """The standard error is 0.2 % of it: √20 weights · (0.4 / 0.7)² / √2, over √2000."""
    model = sampled("local_reparam")
    assert kl(model, samples=2000).item() == pytest.approx(by_hand(model, td.Normal(0.1, 0.7)).item(), rel=0.01)


def test_more_samples_are_more_bases() -> None:
    model = sampled()
    single, many = (torch.stack([_seeded(model, s, n) for s in range(200)]) for n in (1, 16))
    assert 8 < float(single.var() / many.var()) < 32  # an F ratio around 16, five standard errors to both sides


def _seeded(model: nn.Module, seed: int, samples: int) -> Tensor:
    with flipout.hold(model, seed=seed):
        return kl(model, samples=samples).detach()


def test_fixed_noise_has_no_part_in_it() -> None:
    model = flipout.perturb(mlp(), flipout.MeanField(prior=PRIOR), where="0.weight")
    before = kl(model)
    flipout.perturb(model, flipout.DropConnect(0.5), where="2.weight")
    assert torch.equal(kl(model), before)


def test_an_extreme_spread() -> None:
    model: Any = flipout.perturb(nn.Linear(4, 3), flipout.MeanField(prior=PRIOR))
    for rho in (-60.0, 60.0):
        with torch.no_grad():
            model.weight_rho.fill_(rho)
        model.zero_grad()
        divergence = kl(model)
        divergence.backward()
        assert math.isfinite(divergence.item())
        assert model.weight_rho.grad.isfinite().all()
        sigma = math.exp(rho) if rho < 0 else rho
        assert divergence.item() == pytest.approx(12 * ((sigma / 0.7) ** 2 / 2 - math.log(sigma / 0.7)), rel=0.02)


def test_bad_input() -> None:
    with pytest.raises(errors.NoPrior, match=r"0.weight and 1 more: a learned spread without a prior .*prior=flipout"):
        kl(flipout.perturb(mlp(), flipout.MeanField()))
    half = flipout.perturb(mlp(), flipout.MeanField(prior=PRIOR), where="0.weight")
    flipout.perturb(half, flipout.MeanField(), where="2.weight")
    with pytest.raises(errors.NoPrior, match=r"^2.weight: a learned spread"):
        kl(half)
    with pytest.raises(errors.NotPerturbed, match="no learned spreads"):
        kl(flipout.perturb(mlp(), flipout.Gaussian(0.1)))
    with pytest.raises(errors.NotPerturbed, match=r"no perturbed layers.*MeanField\(prior=flipout\.bayes\.Normal"):
        kl(mlp())
    model = flipout.perturb(mlp(), flipout.MeanField(prior=PRIOR))
    for samples in (0, 1.5, True):
        with pytest.raises(errors.InvalidArgument, match="samples="):
            kl(model, samples=samples)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("rank", [1, 3])
def test_the_kl_of_a_low_rank_covariance_is_exact(rank: int) -> None:
    torch.manual_seed(rank)
    noise = flipout.LowRankNormal(rank, std=0.2, factor_std=0.5, prior=Normal(0.3, 0.7))
    layer = flipout.nn.Linear(3, 2, distribution=noise, where="*", dtype=torch.float64)
    expected = torch.zeros((), dtype=torch.float64)
    for name in ("weight", "bias"):
        mean = layer.get_parameter(name).flatten()
        std = F.softplus(layer.get_parameter(f"{name}_rho")).flatten()
        factors = layer.get_parameter(f"{name}_factors").flatten(1)
        q = td.LowRankMultivariateNormal(mean, factors.T, std.square())
        scale = torch.full_like(mean, 0.7**2)
        p = td.MultivariateNormal(torch.full_like(mean, 0.3), scale.diag())
        expected = expected + td.kl_divergence(q, p)
    torch.testing.assert_close(kl(layer), expected)
    leaves = list(layer.parameters())
    found, truth = (torch.autograd.grad(value, leaves) for value in (kl(layer), expected))
    torch.testing.assert_close(found, truth)


def test_the_padding_row_has_no_part_in_a_low_rank_kl() -> None:
    noise = flipout.LowRankNormal(2, factor_std=0.5, prior=Normal(0.0, 1.0))
    layer = flipout.nn.Embedding(4, 3, padding_idx=1, distribution=noise, where="*")
    before = kl(layer)
    with torch.no_grad():
        layer.get_parameter("weight_factors")[:, 1] = 100.0
    torch.testing.assert_close(kl(layer), before)


def test_a_low_rank_covariance_needs_a_normal_prior() -> None:
    noise = flipout.LowRankNormal(prior=Laplace(0.0, 1.0))
    with pytest.raises(errors.Unsupported, match=r"weight: LowRankNormal\(.*\) has a KL to a Normal prior only"):
        kl(flipout.nn.Linear(3, 2, distribution=noise))
