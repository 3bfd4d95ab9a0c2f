"""predict(): the same answer in any chunks, samples that are networks."""

import copy
from typing import Any

import pytest
import torch
import torch.distributions as td
from torch import Tensor, nn

import flipout
from flipout import errors
from flipout.bayes import ELBO, Normal, Prediction, _fold, _predict, likelihoods, predict
from tests import many_draws
from tests.networks import TiedLM, convnet, encoder, mlp
from tests.statistics import assert_mean

NOISE = flipout.MeanField(std=0.5, prior=Normal())
X = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
FIELDS = ("mean", "standard_error", "total", "aleatoric", "epistemic", "quantiles", "samples")


def bayesian(noise: flipout.Distribution = NOISE, **how: Any) -> Any:
    torch.manual_seed(4)
    return flipout.perturb(mlp().double(), noise, **how)


class Last(nn.Module):
    """The output of an LSTM at the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0][:, -1]


def same(actual: Prediction, expected: Prediction) -> None:
    for name in FIELDS:
        torch.testing.assert_close(
            getattr(actual, name), getattr(expected, name), rtol=1e-7, atol=1e-10, equal_nan=True
        )
    assert (actual.count, actual.bases) == (expected.count, expected.bases)


MODELS: dict[str, tuple[Any, Tensor, dict[str, Any], dict[str, Any]]] = {
    "mlp": (mlp, X, {"where": "*"}, {}),
    "shared": (mlp, X, {"scheme": "shared"}, {}),
    "reused signs": (mlp, X, {"scheme": flipout.Flipout(reuse_signs=True)}, {}),
    "local reparameterisation": (mlp, X, {"scheme": "local_reparam"}, {}),
    "convolutions": (convnet, torch.randn(3, 2, 6, 6).double(), {}, {"likelihood": likelihoods.Categorical(1)}),
    "lstm": (Last, torch.randn(3, 6, 4).double(), {}, {}),
    "tied": (TiedLM, torch.randint(7, (3, 2)), {"where": "*.weight"}, {}),
    "time first": (lambda: encoder(False, 1), torch.randn(4, 3, 8).double(), {}, {"batch_dim": 1, "likelihood": None}),
}


@pytest.mark.parametrize("joint", [False, True], ids=["apart", "joint"])
@pytest.mark.parametrize("name", MODELS)
def test_chunks_change_nothing(name: str, joint: bool) -> None:
    make, x, how, options = MODELS[name]
    model = flipout.perturb(make().double(), NOISE, **how)
    settings = {
        "likelihood": "categorical",
        "quantiles": (0.1, 0.5),
        "keep": True,
        "seed": 3,
        "joint": joint,
        **options,
    }
    whole = predict(model, x, 20, chunk=10**6, **settings)
    assert whole.samples is not None
    assert whole.samples.shape[:2] == (20, x.shape[options.get("batch_dim", 0)])
    assert whole.samples.var(0).max() > 1e-6
    for chunk in (1, 2, 7, 33, 60):
        same(predict(model, x, 20, chunk=chunk, **settings), whole)


@pytest.mark.parametrize("group", [1, 3, 8, 20, 50])
def test_chunks_of_any_group(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, settings = bayesian(), {"seed": 3, "group": group, "quantiles": (0.9,), "keep": True}
    whole = predict(model, X, 20, chunk=10**6, **settings)
    for chunk in (1, 4, 5, 16, 45):
        same(predict(model, X, 20, chunk=chunk, **settings), whole)
    monkeypatch.setattr(_fold, "_BASES_AT_ONCE", 1)
    same(predict(model, X, 20, chunk=10**6, **settings), whole)


@pytest.mark.parametrize("rows", [40, 100])
@pytest.mark.parametrize("joint", [False, True], ids=["apart", "joint"])
@pytest.mark.parametrize("name", ["mlp", "convolutions", "lstm", "tied"])
def test_chunks_of_many_rows_a_base(name: str, joint: bool, rows: int) -> None:
    """With 256 rows a base, one pass has several bases and takes one after the other."""
    make, x, how, _ = MODELS[name]
    model = flipout.perturb(make().double(), NOISE, **how)
    x = x.repeat(-(-rows // len(x)), *[1] * (x.dim() - 1))[:rows]
    whole = predict(model, x, 20, chunk=10**6, seed=3, joint=joint, keep=True, quantiles=(0.5,))
    for chunk in (rows, 3 * rows, 8 * rows, 13 * rows, 16 * rows):
        same(predict(model, x, 20, chunk=chunk, seed=3, joint=joint, keep=True, quantiles=(0.5,)), whole)


FORMED: dict[str, tuple[Any, Tensor, dict[str, Any]]] = {
    "mlp": (mlp, X, {}),
    "mlp, biases too": (mlp, X, {"where": "*"}),
    "convolutions": (convnet, torch.randn(3, 2, 6, 6).double(), {"where": "*"}),
    "channels last": (
        lambda: convnet().to(memory_format=torch.channels_last),
        torch.randn(3, 2, 6, 6).double().to(memory_format=torch.channels_last),
        {},
    ),
    "learned covariance": (mlp, X, {"distribution": flipout.LowRankNormal(rank=2, std=0.5, prior=Normal())}),
    "asymmetric": (mlp, X, {"distribution": flipout.DropConnect(0.3), "scheme": "shared"}),
}


@pytest.mark.parametrize("antithetic", [False, True], ids=["", "mirrored"])
@pytest.mark.parametrize("name", FORMED)
def test_weights_formed_for_a_sample_are_those_of_the_draw(name, antithetic, monkeypatch) -> None:
    make, x, how = FORMED[name]
    if antithetic and name == "asymmetric":
        return
    how = {"distribution": NOISE, **how}
    model = flipout.perturb(make().double(), how.pop("distribution"), **how)
    settings = {"seed": 3, "joint": True, "keep": True, "quantiles": (0.5,), "antithetic": antithetic}
    expected = predict(model, x, 20, chunk=100, **settings)
    passes = rows_of_passes(model)
    monkeypatch.setattr(_fold.Fold, "_forms", lambda *_: True)
    for chunk in (1, 2, 100):
        same(predict(model, x, 20, chunk=chunk, **settings), expected)
    assert passes[-20:] == [len(x)] * 20
    noisy = [p for name, p in model.named_parameters() if not name.endswith("_rho")]
    monkeypatch.setattr(_fold, "_FORMED", 2 * sum(p.numel() for p in noisy))  # two samples at once, or three
    same(predict(model, x, 20, **settings), expected)


def test_weights_of_a_base_are_formed_once(monkeypatch) -> None:
    model, formed = bayesian(), []
    weights = flipout.Flipout.weights
    monkeypatch.setattr(_fold.Fold, "_forms", lambda *_: True)
    monkeypatch.setattr(
        flipout.Flipout, "weights", lambda self, p, groups: formed.append(p.examples) or weights(self, p, groups)
    )
    predict(model, X, 20, joint=True, group=8)
    assert formed == [8, 8, 8, 8, 4, 4]  # of two layers
    formed.clear()
    predict(model, X, 20)
    assert not formed


def test_weights_are_formed_for_many_inputs_to_few_weights(monkeypatch) -> None:
    formed = []
    passes = _fold.Fold._formed_passes
    monkeypatch.setattr(_fold.Fold, "_formed_passes", lambda *args: formed.append(1) or passes(*args))
    model, x = flipout.perturb(nn.Linear(2**10, 4), NOISE), torch.randn(2**11, 2**10)
    predict(model, x, 2, joint=True, chunk=2**11)
    assert len(formed) == 1
    predict(model, x, 2, joint=True)  # in chunks of fewer rows
    predict(model, x, 2, chunk=2**11)
    predict(model, x[1:], 2, joint=True, chunk=2**11)
    predict(model.bfloat16(), x.bfloat16(), 2, joint=True, chunk=2**11)
    assert len(formed) == 1
    monkeypatch.setattr(_fold, "_LARGE", 2**13)  # as many weights as 2²¹ numbers need would take seconds
    x = torch.randn(2**8, 2**5)
    for outputs, forms in ((1025, False), (1024, True)):  # 32 · 1024 ≤ 4 · 2¹³ + 3 < 32 · 1025
        for noise in (flipout.Gaussian(0.5), flipout.MeanField()):  # spreads are no weights
            formed.clear()
            predict(flipout.perturb(nn.Linear(2**5, outputs), noise), x, 2, joint=True, chunk=2**8)
            assert bool(formed) == forms


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_model_whose_noisy_weights_are_empty_predicts() -> None:
    """The inputs have as many numbers as formed weights ask for."""
    last = nn.Linear(0, 3)
    model = flipout.perturb(nn.Sequential(nn.Linear(80, 0), last), flipout.Gaussian(0.1), where="1.weight")
    made = predict(model, torch.randn(2**15, 80), 4, joint=True, chunk=2**15)
    assert torch.equal(made.mean, last.bias.detach().expand(2**15, 3))


def test_formed_weights_are_rounded_once(monkeypatch) -> None:
    model = flipout.perturb(nn.Linear(8, 8, bias=False), flipout.Gaussian(2.0**-9))
    nn.init.ones_(model.weight)
    monkeypatch.setattr(_fold.Fold, "_forms", lambda *_: True)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = predict(model, torch.eye(8), 4, joint=True, seed=1).samples
    exact = predict(model, torch.eye(8), 4, joint=True, seed=1).samples
    assert rounded is not None
    assert exact is not None
    assert torch.equal(rounded.float(), exact.bfloat16().float())
    assert not torch.equal(rounded.float(), torch.ones_like(exact))


def rows_of_passes(model: nn.Module) -> list[int]:
    """Return a list that gets the number of rows of each pass."""
    rows: list[int] = []
    model.register_forward_pre_hook(lambda module, args: rows.append(len(args[0])))
    return rows


def test_a_pass_with_several_bases_sees_the_weights_of_the_draw() -> None:
    model, x = bayesian(), X.repeat(20, 1)
    samples = predict(model, x, 20, seed=3, keep=True).samples
    assert samples is not None
    for sample, row in ((0, 0), (7, 99), (8, 0), (15, 42), (19, 99)):
        network_seen = network(model, 100 * sample + row, seed=3, group=800)
        torch.testing.assert_close(samples[sample, row], network_seen(x[row : row + 1])[0])


@pytest.mark.parametrize("joint", [False, True], ids=["apart", "joint"])
def test_asymmetric_noise_is_served_too(joint: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = bayesian(flipout.DropConnect(0.3), scheme="shared")
    settings = {"seed": 3, "keep": True, "quantiles": (0.5,), "joint": joint}
    whole = predict(model, X, 20, **settings)
    assert whole.samples is not None
    assert len(whole.samples[:, 0].unique(dim=0)) == 20
    for chunk in (1, 7, 40):
        same(predict(model, X, 20, chunk=chunk, **settings), whole)
    for numbers in (1, 50, 200):
        monkeypatch.setattr(_fold, "_BASES_AT_ONCE", numbers)
        same(predict(model, X, 20, **settings), whole)


def test_asymmetric_noise_forms_no_more_weights_at_once_than_memory_is_meant_for(monkeypatch) -> None:
    model, rows = bayesian(flipout.DropConnect(0.3), scheme="shared"), []
    monkeypatch.setattr(_fold, "_BASES_AT_ONCE", 3 * max(p.numel() for p in model.parameters()))
    handle = model[2].register_forward_pre_hook(lambda module, args: rows.append(len(args[0])))
    predict(model, X, 4)
    assert max(rows) == 3
    rows.clear()
    predict(model, X, 4, joint=True)
    handle.remove()
    assert max(rows) == 3 * len(X)


@pytest.mark.parametrize("chunk", [1, 3, 5, 12, 100])
def test_no_more_rows_at_once_than_the_chunk(chunk: int) -> None:
    model, seen = bayesian(), []
    handle = model[2].register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    predict(model, X, 20, chunk=chunk)
    predict(model, X, 20, chunk=chunk, joint=True)
    handle.remove()
    assert sum(seen) == 2 * 20 * len(X)
    assert max(seen) <= chunk


def network(model: nn.Module, example: int, **hold: Any) -> nn.Module:
    """The plain network that one example of a draw sees."""
    plain = copy.deepcopy(model)
    with flipout.hold(plain, **hold):
        return flipout.freeze(plain, at="draw", example=example)


def test_a_joint_sample_is_one_network_for_all_inputs() -> None:
    model = bayesian(where="*")
    samples = predict(model, X, 20, joint=True, seed=3).samples
    assert samples is not None
    for sample in (0, 1, 7, 8, 19):
        torch.testing.assert_close(samples[sample], network(model, sample, seed=3, group=8)(X))


def test_without_joint_every_input_has_its_own() -> None:
    model = bayesian(where="*")
    samples = predict(model, X, 20, keep=True, seed=3).samples
    assert samples is not None
    for sample in (0, 7, 8, 19):
        for i in (0, 4):
            alone = network(model, sample * 5 + i, seed=3, group=8 * 5)
            torch.testing.assert_close(samples[sample, i], alone(X)[i])
            assert not torch.allclose(alone(X), samples[sample])


def test_samples_of_asymmetric_noise_are_networks_too() -> None:
    """Each input's own, or one for all of them; and each a base of its own."""
    model = bayesian(flipout.DropConnect(0.3), scheme="independent", where="*")
    apart, joint = (predict(model, X, 8, joint=joint, keep=True, seed=3) for joint in (False, True))
    for prediction in (apart, joint):
        assert prediction.samples is not None
        assert prediction.bases == prediction.count == 8
        torch.testing.assert_close(prediction.standard_error, prediction.samples.std(0) / 8**0.5)
    assert apart.samples is not None
    assert joint.samples is not None
    for sample in (0, 7):
        torch.testing.assert_close(joint.samples[sample], network(model, sample, seed=3)(X))
        for i in (0, 4):
            alone = network(model, sample * 5 + i, seed=3)
            torch.testing.assert_close(apart.samples[sample, i], alone(X)[i])
            assert not torch.allclose(alone(X), apart.samples[sample])


class Squares(nn.Module):
    """Σ (W x)²: its mean is known, and one base has most of its variance."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).square().sum(1)


def test_uncertainties_of_classes() -> None:
    prediction = predict(bayesian(), X, 20, likelihood="categorical", keep=True)
    assert prediction.samples is not None
    torch.testing.assert_close(prediction.mean, prediction.samples.mean(0))
    torch.testing.assert_close(prediction.total, td.Categorical(prediction.mean).entropy())
    torch.testing.assert_close(prediction.aleatoric, td.Categorical(prediction.samples).entropy().mean(0))
    torch.testing.assert_close(prediction.epistemic, prediction.total - prediction.aleatoric)
    assert prediction.total.shape == (5,)
    assert (prediction.epistemic > 0).all()
    prediction = predict(bayesian(), X, 20, likelihood="bernoulli", keep=True)
    assert prediction.samples is not None
    torch.testing.assert_close(prediction.total, td.Bernoulli(prediction.samples.mean(0)).entropy())
    torch.testing.assert_close(prediction.aleatoric, td.Bernoulli(prediction.samples).entropy().mean(0))


def test_uncertainties_of_numbers() -> None:
    prediction = predict(bayesian(), X, 20, likelihood=likelihoods.Gaussian(0.3), keep=True)
    assert prediction.samples is not None
    torch.testing.assert_close(prediction.aleatoric, torch.full_like(prediction.mean, 0.09), rtol=1e-6, atol=0)
    torch.testing.assert_close(prediction.total, prediction.aleatoric + prediction.epistemic)
    prediction = predict(bayesian(), X, 20, likelihood="poisson", keep=True)
    assert prediction.samples is not None
    torch.testing.assert_close(prediction.aleatoric, prediction.samples.mean(0))
    prediction = predict(bayesian(), X, 20)
    assert not prediction.aleatoric.any()
    assert prediction.samples is prediction.outputs
    assert prediction.quantiles is None


def test_samples_are_kept_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for keep, chunk in ((None, None), (None, 7), (True, None)):
        assert predict(bayesian(), X, 20, keep=keep, chunk=chunk).samples is not None
    monkeypatch.setattr(_predict, "_KEPT", 20 * 5 * 3)
    assert predict(bayesian(), X, 20, chunk=7).samples is not None
    for samples, chunk, keep in ((21, None, None), (21, 7, None), (20, None, False)):
        assert predict(bayesian(), X, samples, chunk=chunk, keep=keep).samples is None
    quantiles = predict(bayesian(), X, 21, quantiles=(0.5,), keep=False)
    assert quantiles.quantiles is not None
    assert quantiles.samples is None
    for joint, keep in ((True, None), (False, True)):
        assert predict(bayesian(), X, 21, joint=joint, keep=keep).samples is not None
    assert predict(bayesian(), X, 21, joint=True, keep=False).samples is None


def test_the_elbo_knows_its_likelihood_and_output() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp().double()

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logits": self.net(x), "other": x}

    model = flipout.perturb(Named(), NOISE)
    elbo = ELBO(model, likelihoods.Gaussian(0.3), num_data=5, output="logits")
    same(predict(elbo, X, seed=1), predict(model, X, likelihood=elbo.likelihood, output="logits", seed=1))
    assert predict(elbo, X, likelihood="bernoulli").mean.max() < 1
    compiled = ELBO(torch.compile(model, backend="eager"), "gaussian", num_data=5, output="logits")  # pyright: ignore[reportArgumentType]
    same(predict(compiled, X, seed=1), predict(model, X, likelihood=compiled.likelihood, output="logits", seed=1))


def test_the_variance_over_independent_samples_is_the_usual_one() -> None:
    for group, samples in ((1, 20), (20, 20), (50, 20)):
        prediction = predict(bayesian(), X, samples, group=group, keep=True)
        assert prediction.samples is not None
        torch.testing.assert_close(prediction.epistemic, prediction.samples.var(0))


@pytest.mark.parametrize("samples", [32, 20, 10])
def test_the_variance_is_unbiased_though_samples_of_a_base_are_correlated(samples: int) -> None:
    """Var Σ (w x)² = Σ 2 s⁴ + 4 (w̄ x)² s², s² = σ² |x|². The usual estimate is too small."""
    model: Any = flipout.perturb(Squares().double(), NOISE).eval()

    def variances(seed: Tensor) -> tuple[Tensor, Tensor]:
        prediction = predict(model, X, samples, seed=seed, keep=True)
        assert prediction.samples is not None
        return prediction.epistemic, prediction.samples.var(0)

    spread = 0.25 * X.square().sum(1, keepdim=True)
    theory = (2 * spread**2 + 4 * model.layer(X).square() * spread).sum(1)
    pooled, usual = torch.func.vmap(variances)(many_draws.seeds(8000))
    assert_mean(pooled, theory)
    assert (usual.mean(0) < 0.97 * theory).all()


def test_a_linear_map_has_the_mean_and_variance_that_are_known() -> None:
    """W̄ x + b and Σ σ² x²; flipout's samples of it are uncorrelated."""
    model: Any = flipout.perturb(nn.Linear(4, 2).double(), NOISE).eval()

    def moments(seed: Tensor) -> tuple[Tensor, Tensor]:
        prediction = predict(model, X, 24, seed=seed)
        return prediction.mean, prediction.epistemic

    mean, variance = torch.func.vmap(moments)(many_draws.seeds(2000))
    assert_mean(mean, model(X))
    assert_mean(variance, 0.25 * X.square().sum(1, keepdim=True).expand(5, 2))


def test_quantiles() -> None:
    levels = (0.0, 0.25, 0.5, 0.9, 1.0)
    prediction = predict(bayesian(), X, 21, quantiles=levels, keep=True)
    assert prediction.samples is not None
    torch.testing.assert_close(
        prediction.quantiles, prediction.samples.quantile(torch.tensor(levels, dtype=torch.float64), 0)
    )


def test_a_seed_repeats_it_and_so_does_torchs_generator() -> None:
    model = bayesian()
    same(predict(model, X, seed=5, quantiles=(0.5,), keep=True), predict(model, X, seed=5, quantiles=(0.5,), keep=True))
    torch.manual_seed(1)
    first, after = predict(model, X), torch.rand(())
    torch.manual_seed(1)
    second = predict(model, X)
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(after, torch.rand(()))
    assert not torch.equal(first.mean, predict(model, X).mean)


def test_samples_until_the_error_is_small() -> None:
    model = bayesian()
    prediction = predict(model, X, "auto", likelihood="categorical", tolerance=0.01, seed=2)
    assert prediction.standard_error.max() <= 0.01
    assert prediction.count in [32 * 2**k for k in range(1, 7)]
    fixed = predict(model, X, prediction.count, likelihood="categorical", seed=2)
    torch.testing.assert_close(prediction.mean, fixed.mean)
    before = predict(model, X, prediction.count // 2, likelihood="categorical", seed=2)
    assert before.standard_error.max() > 0.01
    chunked = predict(model, X, "auto", likelihood="categorical", tolerance=0.04, seed=2, chunk=2, group=5)
    whole = predict(model, X, "auto", likelihood="categorical", tolerance=0.04, seed=2, group=5)
    assert whole.count > 32
    assert chunked.count == whole.count
    torch.testing.assert_close(chunked.standard_error, whole.standard_error, rtol=1e-6, atol=1e-9)
    with pytest.warns(RuntimeWarning, match="after most=50 samples the largest standard error is"):
        assert predict(model, X, "auto", tolerance=1e-9, most=50).count == 50


@pytest.mark.parametrize("batch_first", [False, True])
def test_torchs_fast_path_does_not_swallow_the_noise(batch_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first).eval()
    model = flipout.perturb(layer, NOISE)
    x = torch.randn(3, 4, 8)
    with torch.inference_mode():
        prediction = predict(model, x, 16, batch_dim=0 if batch_first else 1)
        assert torch.equal(model(x), model(x))
    assert (prediction.epistemic > 1e-6).all()
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_half_precision_is_averaged_in_single(dtype: torch.dtype) -> None:
    model, x = flipout.perturb(mlp(), NOISE).to(dtype), X.to(dtype)
    with torch.inference_mode():
        prediction = predict(model, x, 512, likelihood="categorical", seed=3)
    exact = predict(copy.deepcopy(model).double(), x.double(), 512, likelihood="categorical", seed=3)
    assert prediction.mean.dtype == torch.float32
    torch.testing.assert_close(prediction.mean.sum(-1), torch.ones(5), rtol=1e-6, atol=0)
    # A sum in bf16 would have stopped growing; what is left is the rounding of each sample, which averages out.
    torch.testing.assert_close(
        prediction.mean.double(), exact.mean, rtol=0, atol=2e-3 if dtype != torch.float32 else 1e-6
    )


def test_the_model_is_put_back() -> None:
    model = bayesian().train()
    model[2].eval()
    predict(model, X)
    assert (model.training, model[0].training, model[2].training) == (True, True, False)
    assert all(p.requires_grad for p in model.parameters())
    with pytest.raises(errors.InvalidInput):
        predict(model, X[:, :3])
    assert (model.training, model[0].training, model[2].training) == (True, True, False)
    assert model[0].flipout.scheme == flipout.Flipout()


def test_batch_norm_and_dropout_stay_in_eval() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).double()
    flipout.perturb(model, flipout.MeanField(std=1e-9)).train()
    prediction = predict(model, X, 16)
    torch.testing.assert_close(prediction.mean, model.eval()(X), rtol=0, atol=1e-7)


def test_a_saved_and_loaded_model_predicts_the_same() -> None:
    model = bayesian()
    other = flipout.perturb(mlp().double(), flipout.MeanField(prior=Normal(3.0, 4.0)))
    other.load_state_dict(model.state_dict())
    settings: dict[str, Any] = {"seed": 3, "quantiles": (0.5,), "keep": True}
    for name in FIELDS:
        assert torch.equal(getattr(predict(model, X, **settings), name), getattr(predict(other, X, **settings), name))
    assert torch.equal(flipout.bayes.kl(model), flipout.bayes.kl(other))


def test_several_inputs() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3).double()

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.layer(a) * b

    model = flipout.perturb(Pair(), NOISE)
    together, alone = (
        predict(model, (X, X[:, :1]), 8, seed=1).mean,
        predict(model, (X, torch.ones(5, 1)), 8, seed=1).mean,
    )
    torch.testing.assert_close(together, alone * X[:, :1])
    same(
        predict(model, (X, X[:, :1]), 8, seed=1, chunk=3, keep=True, quantiles=(0.5,)),
        predict(model, (X, X[:, :1]), 8, seed=1, keep=True, quantiles=(0.5,)),
    )


def test_probabilities_in_place_of_logits_are_worth_a_warning() -> None:
    net = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1)), flipout.Gaussian(0.1)).double()
    with pytest.warns(RuntimeWarning, match=r"predict: .*sum to 1.*takes logits") as caught:
        predict(net, X, samples=4, likelihood="categorical", chunk=5)
    assert [warning.filename for warning in caught] == [__file__]  # once, where predict was called
