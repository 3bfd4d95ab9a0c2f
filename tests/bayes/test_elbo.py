"""ELBO: the loss is what a hand computation gives, and the same however a batch is split."""

import math
import warnings
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flipout
from flipout import errors
from flipout.bayes import ELBO, Normal, ScaleMixture, kl, warm_up
from flipout.bayes.likelihoods import Gaussian
from flipout.distributions.mean_field import inverse_softplus
from tests import many_draws
from tests.networks import TiedLM, gradients, mlp
from tests.statistics import assert_mean, assert_same_distribution, assert_same_mean

X, Y = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), torch.arange(12) % 3
PRIORS = {"closed form": Normal(0.0, 0.5), "Monte Carlo": ScaleMixture(0.5, 1.0, 0.1)}


def bayesian(prior: Any = PRIORS["closed form"], scheme: Any = "flipout") -> Any:
    torch.manual_seed(4)
    return flipout.perturb(mlp().double(), flipout.MeanField(std=0.3, prior=prior), scheme=scheme, where="*")


@pytest.mark.parametrize("kind", PRIORS)
@pytest.mark.parametrize("weight", [1.0, 0.1, 0.0])
def test_the_loss_is_what_a_hand_computation_gives(kind: str, weight: float) -> None:
    model = bayesian(PRIORS[kind])
    elbo = ELBO(model, "categorical", num_data=500, kl_weight=weight)
    with flipout.hold(model, seed=3):
        terms = elbo(X, Y)
        log_likelihood = -F.cross_entropy(model(X), Y, reduction="sum")
        divergence = kl(model)
    torch.testing.assert_close(terms.log_likelihood, log_likelihood)
    torch.testing.assert_close(terms.kl, divergence)
    torch.testing.assert_close(terms.loss, -log_likelihood / 12 + weight * divergence / 500)
    torch.testing.assert_close(terms.elbo, log_likelihood * 500 / 12 - divergence)
    assert (terms.kl_weight, terms.examples, terms.num_data) == (weight, 12, 500)


def test_one_draw_for_likelihood_and_monte_carlo_kl() -> None:
    """Also where nobody holds one: the same seed gives what a held draw of that seed gives."""
    model = bayesian(PRIORS["Monte Carlo"])
    elbo = ELBO(model, "categorical", num_data=500)
    torch.manual_seed(8)
    terms = elbo(X, Y)
    torch.manual_seed(8)
    with flipout.hold(model):
        torch.testing.assert_close(kl(model), terms.kl)
        torch.testing.assert_close(-F.cross_entropy(model(X), Y, reduction="sum"), terms.log_likelihood)
    assert not torch.equal(elbo(X, Y).kl, elbo(X, Y).kl)


SCHEMES = ["shared", "flipout", flipout.Flipout(group=3), "independent", "local_reparam"]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("kind", PRIORS)
@pytest.mark.parametrize("sizes", [(12,), (6, 6), (5, 5, 2), (1,) * 12, (11, 1)], ids=str)
def test_it_does_not_depend_on_how_a_batch_is_split(scheme: Any, kind: str, sizes: tuple[int, ...]) -> None:
    """Losses and gradients of the parts add up to those of the whole, under one held draw."""
    model = bayesian(PRIORS[kind], scheme)
    elbo = ELBO(model, "categorical", num_data=500, kl_weight=0.7)
    with flipout.hold(model, seed=3):
        whole = elbo(X, Y).loss
    whole.backward()
    expected = gradients(model)
    model.zero_grad()
    total, start = torch.zeros(()), 0
    for size in sizes:
        with flipout.hold(model, seed=3, first=start):
            loss = elbo(X[start : start + size], Y[start : start + size], batch=12).loss
        loss.backward()
        total, start = total + loss.detach(), start + size
    torch.testing.assert_close(total, whole.detach().to(total), rtol=1e-10, atol=0)
    torch.testing.assert_close(gradients(model), expected, rtol=1e-9, atol=1e-12)


def test_an_epoch_with_a_short_last_batch_counts_the_kl_once() -> None:
    """Batches of 5, 5 and 2 out of 12, each with batch=5: their sum is the whole data's bound, times 12 / 5."""
    model = bayesian()
    elbo = ELBO(model, "categorical", num_data=12)
    with flipout.hold(model, seed=3):
        bound = elbo(X, Y).elbo
    parts = []
    for start, size in ((0, 5), (5, 5), (10, 2)):
        with flipout.hold(model, seed=3, first=start):
            parts.append(elbo(X[start : start + size], Y[start : start + size], batch=5).loss)
    torch.testing.assert_close(sum(parts) * 5, -bound)


def test_the_loss_is_per_example() -> None:
    """A batch twice as large, of the same examples under the same weights, has the same loss."""
    model = bayesian(scheme="shared")
    elbo = ELBO(model, "categorical", num_data=500)
    with flipout.hold(model, seed=3):
        loss = elbo(X, Y).loss
    with flipout.hold(model, seed=3):
        torch.testing.assert_close(elbo(torch.cat((X, X)), torch.cat((Y, Y))).loss, loss)


def test_the_bound_is_unbiased_over_minibatches() -> None:
    model = bayesian()
    elbo = ELBO(model, "categorical", num_data=12)

    def bound(seed: Tensor, rows: Tensor) -> Tensor:
        with flipout.hold(model, seed=seed):
            return elbo(X[rows], Y[rows]).elbo.detach()

    batches = torch.randint(12, (8000, 4), generator=torch.Generator().manual_seed(0))
    bounds = torch.func.vmap(bound)(many_draws.seeds(8000), batches)
    whole = torch.func.vmap(bound)(many_draws.seeds(8000, 10**6), torch.arange(12).expand(8000, 12))
    assert_same_mean(bounds, whole)


def test_the_gradient_vanishes_at_the_best_factorised_posterior() -> None:
    """Linear regression: mean Λ⁻¹ Xᵀy / s² and variances 1 / Λ_ii, Λ = XᵀX / s² + I / τ². Over draws of weights and
    of mini-batches, the mean gradient is 0 there; with a KL of another scale it would not be."""
    noise, spread = 0.5, 2.0
    inputs, targets = X[:, :3], X[:, 3:]
    precision = inputs.T @ inputs / noise**2 + torch.eye(3, dtype=torch.float64) / spread**2
    model: Any = flipout.perturb(nn.Linear(3, 1, bias=False).double(), flipout.MeanField(prior=Normal(0.0, spread)))
    likelihood = Gaussian(torch.tensor(noise, dtype=torch.float64), learn=False)
    std = precision.diagonal().rsqrt().unsqueeze(0)
    best = {
        "model.weight": torch.linalg.solve(precision, inputs.T @ targets).T / noise**2,
        "model.weight_rho": inverse_softplus(std),
    }
    batches = torch.randint(12, (20_000, 4), generator=torch.Generator().manual_seed(0))

    def gradients(num_data: int) -> dict[str, Tensor]:
        elbo = ELBO(model, likelihood, num_data=num_data)

        def loss(parameters: dict[str, Tensor], seed: Tensor, rows: Tensor) -> Tensor:
            with flipout.hold(model, seed=seed):
                return torch.func.functional_call(elbo, parameters, (inputs[rows], targets[rows])).loss

        return torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(best, many_draws.seeds(20_000), batches)

    for gradient in gradients(num_data=12).values():
        assert_mean(gradient, 0.0)
    with pytest.raises(AssertionError, match="missed"):
        assert_mean(gradients(num_data=6)["model.weight_rho"], 0.0)


def test_tokens_of_an_example_are_summed() -> None:
    model: Any = flipout.perturb(TiedLM(), flipout.MeanField(prior=Normal()), where="*.weight")
    tokens = torch.randint(7, (3, 5))
    with flipout.hold(model, seed=1):
        terms = ELBO(model, "categorical", num_data=50)(tokens, tokens)
        expected = -F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten(), reduction="sum")
    torch.testing.assert_close(terms.log_likelihood, expected)
    assert terms.examples == 3


def test_examples_in_another_dimension() -> None:
    model: Any = flipout.perturb(nn.Linear(4, 3), flipout.MeanField(prior=Normal()), batch_dim=1)
    terms = ELBO(model, "categorical", num_data=50, batch_dim=1)(torch.randn(5, 2, 4), torch.zeros(5, 2).long())
    assert terms.examples == 2


def test_learned_noise_is_trained_with_the_model() -> None:
    model = bayesian()
    elbo = ELBO(model, "gaussian", num_data=500)
    elbo(X, torch.randn(12, 3)).loss.backward()
    names = {name for name, p in elbo.named_parameters() if p.grad is not None}
    assert "likelihood.log_std" in names
    assert {name for name in names if name.startswith("model.")} == {f"model.{name}" for name in gradients(model)}


def test_any_function_and_several_inputs() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.layer(a + b)

    model = flipout.perturb(Sum(), flipout.MeanField(prior=Normal()))
    x, y = torch.randn(5, 4), torch.randn(5, 3)
    elbo = ELBO(model, lambda output, target: -(output - target).abs().sum(1), num_data=50)
    with flipout.hold(model, seed=1):
        terms = elbo((x, x), y)
        torch.testing.assert_close(terms.log_likelihood, -(model(x, x) - y).abs().sum())


def test_eval_mode_still_draws() -> None:
    """At the mean weights it would be no bound. Dropout, which is no part of the posterior, stays off."""
    model = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.9)).double(), flipout.MeanField(prior=Normal()))
    elbo = ELBO(model, "categorical", num_data=500)

    def term(_: Tensor) -> Tensor:
        return elbo(X, Y).log_likelihood.detach()

    elbo.eval()
    terms = torch.func.vmap(term, randomness="different")(many_draws.seeds(4000))
    elbo.train()
    model[1].eval()
    trained = torch.func.vmap(term, randomness="different")(many_draws.seeds(4000))
    assert terms.var() > 0
    assert_same_distribution(terms, trained)


def test_warm_up() -> None:
    schedule = warm_up(4, 0.1)
    assert [schedule(step) for step in (0, 1, 2, 4, 100)] == pytest.approx([0.0, 0.025, 0.05, 0.1, 0.1])
    elbo = ELBO(bayesian(), "categorical", num_data=500, kl_weight=schedule)
    with flipout.hold(elbo.model, seed=3):
        first, later = elbo(X, Y, step=0), elbo(X, Y, step=2)
    torch.testing.assert_close(later.loss - first.loss, 0.05 * first.kl / 500)
    with pytest.raises(errors.InvalidArgument, match=r"kl_weight is a function of the step: .*step="):
        elbo(X, Y)


def test_bf16_terms_are_in_single_precision() -> None:
    model = flipout.perturb(nn.Linear(64, 5), flipout.MeanField(prior=Normal())).bfloat16()
    terms = ELBO(model, "categorical", num_data=500)(torch.randn(300, 64).bfloat16(), torch.randint(5, (300,)))
    assert terms.loss.dtype == terms.kl.dtype == terms.log_likelihood.dtype == torch.float32
    terms.loss.backward()


@pytest.mark.parametrize("kind", PRIORS)
def test_compiled_model(kind: str) -> None:
    torch.compiler.reset()
    model = flipout.perturb(nn.Linear(4, 3).double(), flipout.MeanField(prior=PRIORS[kind]))
    fast: Any = torch.compile(model, fullgraph=True, backend="aot_eager")
    elbo, plain = ELBO(fast, "categorical", num_data=500), ELBO(model, "categorical", num_data=500)
    with flipout.hold(model, seed=3):
        torch.testing.assert_close(elbo(X, Y).loss, plain(X, Y).loss)
    first = elbo(X, Y)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert not torch.equal(elbo(X, Y).log_likelihood, first.log_likelihood)
    losses = []
    for module in (fast, model):
        torch.manual_seed(5)
        losses.append(ELBO(module, "categorical", num_data=500, antithetic=True)(X, Y).loss)
    torch.testing.assert_close(*losses)
    torch.compiler.reset()


def test_a_non_finite_loss_says_what_is_wrong() -> None:
    model = bayesian()
    elbo = ELBO(model, "gaussian", num_data=500)
    with pytest.raises(
        errors.NonFinite, match=r"loss is inf: the log-likelihood is -inf. Lower the learning rate .*Guard"
    ):
        elbo(X, torch.full((12, 3), 1e200, dtype=torch.float64))
    with torch.no_grad():
        model[0].weight_rho.fill_(math.nan)
    with pytest.raises(errors.NonFinite, match="the log-likelihood is nan and the KL is nan"):
        elbo(X, torch.zeros(12, 3))
    unchecked = ELBO(model, "gaussian", num_data=500, check=False)
    assert unchecked(X, torch.zeros(12, 3)).loss.isnan()


@pytest.mark.parametrize("num_data", [None, 0, -5, 2.5, True])
def test_num_data_is_needed(num_data: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"num_data=.*: expected the number of examples .* len\(dataset\)"):
        ELBO(bayesian(), "categorical", num_data=num_data)


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf, "1"])
def test_a_weight_that_is_none_is_refused(weight: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="expected a finite number ≥ 0"):
        ELBO(bayesian(), "categorical", num_data=5, kl_weight=weight)
    with pytest.raises(errors.InvalidArgument, match="expected a finite number ≥ 0"):
        warm_up(3, weight)
    with pytest.raises(errors.InvalidArgument, match=r"kl_weight\(1\) is"):
        ELBO(bayesian(), "categorical", num_data=5, kl_weight=lambda step: weight)(X, Y, step=1)


def test_bad_input() -> None:
    model = bayesian()
    elbo = ELBO(model, "categorical", num_data=500)
    with pytest.raises(errors.InvalidInput, match=r"target of shape \(11,\)"):
        elbo(X, Y[:11])
    with pytest.raises(errors.InvalidInput, match="without examples"):
        elbo(X[:0], Y[:0])
    for batch in (0, -1, math.nan, "12", len(X) - 1):
        with pytest.raises(errors.InvalidArgument, match="number of examples of the whole step"):
            elbo(X, Y, batch=batch)  # pyright: ignore[reportArgumentType]
    with pytest.raises(errors.InvalidInput, match=r"returned a tensor of shape \(\); .*reduction='none'"):
        ELBO(model, F.cross_entropy, num_data=500)(X, Y)
    with pytest.raises(errors.InvalidInput, match=r"returned shape \(1, 3\) for a target of shape \(12,\)"):
        ELBO(model, lambda output, target: output[:1], num_data=500)(X, Y)
    with pytest.raises(errors.InvalidInput, match="returned <class 'list'>"):
        ELBO(model, lambda output, target: [], num_data=500)(X, Y)  # pyright: ignore[reportArgumentType]
    with pytest.raises(errors.NoPrior):
        ELBO(flipout.perturb(mlp(), flipout.MeanField()), "categorical", num_data=5)(X.float(), Y)
    with pytest.raises(errors.InvalidArgument, match="steps=0"):
        warm_up(0)
    assert isinstance(ELBO(model, Gaussian(), num_data=5).likelihood, Gaussian)


def test_layers_in_eval_are_drawn_too_where_the_root_trains() -> None:
    model = flipout.perturb(mlp().double(), flipout.MeanField(std=1.0, prior=Normal()))
    elbo = ELBO(model, "categorical", num_data=100)
    for layer in model:
        layer.eval()
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(3, (6,))
    assert model.training
    assert elbo(x, y).log_likelihood != elbo(x, y).log_likelihood


def test_examples_in_another_dimension_are_noticed() -> None:
    model = flipout.perturb(nn.Linear(4, 3), flipout.MeanField(prior=Normal()), batch_dim=1)
    x, y = torch.randn(7, 5, 4), torch.randint(3, (7, 5))
    with pytest.raises(errors.InvalidInput, match=r"saw 5 examples.*batch_dim=1"):
        ELBO(model, "categorical", num_data=100)(x, y)
    assert ELBO(model, "categorical", num_data=100, batch_dim=1)(x, y).examples == 5


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_targets_far_from_the_outputs_are_worth_one_warning(likelihood: Any) -> None:
    outputs = 2 if likelihood == "heteroscedastic" else 1
    model = flipout.perturb(nn.Linear(4, outputs), flipout.MeanField(prior=Normal()))
    x, y = torch.randn(20, 4), 150 + 80 * torch.randn(20, 1)
    elbo = ELBO(model, likelihood, num_data=100)
    with pytest.warns(RuntimeWarning, match=r"ELBO: The targets are 1\d\d away .*rescale\(y\.std\(\), y\.mean\(\)\)"):
        elbo(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        elbo(x, y)  # it is said once
        ELBO(model, likelihood, num_data=100)(x, (y - y.mean()) / y.std())
        ELBO(model, Gaussian(20.0), num_data=100)(x, y[:, [0] * outputs])  # noise of the size of the targets
        ELBO(model, likelihood, num_data=100, check=False)(x, y)


def test_probabilities_in_place_of_logits_are_worth_a_warning() -> None:
    model: Any = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1)), flipout.MeanField(prior=Normal()))
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    with pytest.warns(RuntimeWarning, match=r"sum to 1.*takes logits.*Leave the model's softmax out"):
        ELBO(model, "categorical", num_data=100)(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ELBO(model[:1], "categorical", num_data=100)(x, y)
        ELBO(nn.Sequential(*model[:1], nn.LogSoftmax(-1)), "categorical", num_data=100)(x, y)


def test_more_examples_than_data_is_worth_a_warning() -> None:
    model = flipout.perturb(nn.Linear(4, 3), flipout.MeanField(prior=Normal()))
    with pytest.warns(RuntimeWarning, match=r"num_data=5.*len\(dataset\)"):
        ELBO(model, "categorical", num_data=5)(torch.randn(20, 4), torch.randint(3, (20,)))


def test_a_model_without_priors_is_refused_at_once() -> None:
    with pytest.raises(errors.NoPrior):
        ELBO(flipout.perturb(nn.Linear(4, 3), flipout.MeanField()), "categorical", num_data=5)
    with pytest.raises(errors.NotPerturbed, match=r"MeanField\(prior="):
        ELBO(nn.Linear(4, 3), "categorical", num_data=5)


def test_a_loss_is_no_likelihood() -> None:
    model = flipout.perturb(nn.Linear(4, 3), flipout.MeanField(prior=Normal()))
    with pytest.raises(errors.InvalidArgument, match="would be maximised"):
        ELBO(model, nn.CrossEntropyLoss(reduction="none"), num_data=5)
    each = partial(F.cross_entropy, reduction="none")
    for loss in (
        each,
        partial(each, label_smoothing=0.1),
        partial(F.mse_loss, reduction="none"),
        partial(nn.MSELoss()),
    ):
        with pytest.raises(errors.InvalidArgument, match=r"would be maximised.*minus that loss"):
            ELBO(model, loss, num_data=5)


def test_a_function_of_whole_targets_returns_log_probabilities() -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target, reduction="none")

    model = bayesian()
    with pytest.raises(
        errors.InvalidInput, match=r"values up to .* dtype torch\.int64; expected log-prob.*Negate a loss"
    ):
        ELBO(model, loss, num_data=500)(X, Y)
    ELBO(model, loss, num_data=500, check=False)(X, Y)
    custom = ELBO(model, lambda output, target: -loss(output, target), num_data=500)
    named = ELBO(model, "categorical", num_data=500)
    with flipout.hold(model, seed=3):
        torch.testing.assert_close(custom(X, Y).loss, named(X, Y).loss)


def test_a_density_may_be_above_1() -> None:
    narrow = Gaussian(torch.tensor(0.01, dtype=torch.float64))
    model = flipout.perturb(nn.Linear(4, 1).double(), flipout.MeanField(std=1e-4, prior=Normal()))
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    assert ELBO(model, narrow, num_data=500)(X, torch.zeros(12, 1).long()).log_likelihood > 0
    assert ELBO(model, narrow.log_prob, num_data=500)(X, torch.zeros(12, 1)).log_likelihood > 0


@pytest.mark.parametrize("batch_dim", [(1, 0), "0", -1, True])
def test_the_dimension_of_the_examples_is_a_number(batch_dim: Any) -> None:
    model = flipout.perturb(nn.Linear(4, 3), flipout.MeanField(prior=Normal()))
    with pytest.raises(errors.InvalidArgument, match="expected the dimension of the examples"):
        ELBO(model, "categorical", num_data=5, batch_dim=batch_dim)


class Folded(nn.Module):
    """(N, T, 4) → (N·T, 3): tokens folded into the batch after the layer with noise."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.decoder = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.lstm(x)[0].flatten(0, 1))


def test_tokens_that_are_folded_into_the_batch_are_pointed_out() -> None:
    model = flipout.perturb(Folded(), flipout.MeanField(prior=Normal()), where="lstm.weight_*")
    elbo = ELBO(model, "categorical", num_data=100)
    with pytest.warns(RuntimeWarning, match=r"of 14 examples, where the model's layers saw 2: .*return \(N, T, …\)"):
        assert elbo(torch.randn(2, 7, 4), torch.zeros(14).long()).examples == 14


@pytest.mark.parametrize("kind", PRIORS)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_antithetic_is_the_mean_over_a_draw_and_its_mirror_image(kind: str, mode: str) -> None:
    model = getattr(bayesian(PRIORS[kind]), mode)()
    elbo = ELBO(model, "categorical", num_data=500, antithetic=True)
    torch.manual_seed(8)
    terms = elbo(X, Y)
    terms.loss.backward()
    found = gradients(model)
    seed = torch.Generator().manual_seed(8)
    number = int(torch.randint(2**63 - 1, (), dtype=torch.int64, generator=seed))
    model.zero_grad()
    losses, log_likelihoods, plain_kl = [], [], []
    plain = ELBO(model, "categorical", num_data=500)
    for antithetic in (False, True):
        with flipout.hold(model, seed=number, antithetic=antithetic):
            single = plain(X, Y)
        losses.append(single.loss / 2)
        log_likelihoods.append(single.log_likelihood.detach() / 2)
        plain_kl.append(single.kl.detach())
    (losses[0] + losses[1]).backward()
    torch.testing.assert_close(terms.log_likelihood.detach(), log_likelihoods[0] + log_likelihoods[1])
    torch.testing.assert_close(terms.kl.detach(), plain_kl[0])
    torch.testing.assert_close(plain_kl[1], plain_kl[0])  # it averages over ±ΔŴ already
    torch.testing.assert_close(found, gradients(model))


def test_antithetic_gradients_of_a_linear_regression_have_no_noise() -> None:
    """The error of a linear map is linear in ΔW: over a draw and its mirror image it cancels in the gradient of W̄."""
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(4, 1).double(), flipout.MeanField(std=0.3, prior=Normal()))
    target = torch.randn(12, 1).double()
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        model.zero_grad()
        ELBO(model, Gaussian(1.0, learn=False), num_data=12, antithetic=True)(X, target).loss.backward()
        found.append(model.weight.grad)
    torch.testing.assert_close(found[0], found[1])


def test_antithetic_refuses_a_draw_that_is_held() -> None:
    model = bayesian()
    with flipout.hold(model), pytest.raises(errors.Unsupported, match=r"antithetic=True\) inside hold"):
        ELBO(model, "categorical", num_data=500, antithetic=True)(X, Y)
