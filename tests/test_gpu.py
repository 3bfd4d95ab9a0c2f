"""The same numbers on a CUDA device."""

import copy
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout.backend import Backend, choosing, chosen
from flipout.bayes import _fold
from flipout.draws.noise import NOISE, Stream, stream_starts
from flipout.draws.signs import sign_batches, sign_words
from flipout.nn.held_weights import weighted_sums
from flipout.schemes import SchemeName

KEY = 12345678901
DEVICE = "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

SCHEMES = ["shared", "flipout", flipout.Flipout(group=3), "independent"]
DISTRIBUTIONS = [
    flipout.Gaussian(0.3),
    flipout.MultiplicativeGaussian(0.7),
    flipout.DropConnect(0.5),
    flipout.Rademacher(0.2),
    flipout.MeanField(std=0.1),
]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, groups=1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 6, 2, stride=2, groups=2),
        nn.Flatten(),
        nn.Linear(6 * 10 * 10, 16),
        nn.Tanh(),
        nn.Linear(16, 4),
    ).double()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_same_weights_outputs_and_gradients_as_on_the_cpu(distribution, scheme) -> None:
    here = flipout.perturb(network(), distribution, scheme=scheme)
    there = copy.deepcopy(here).cuda()
    x = torch.randn(7, 3, 5, 5, dtype=torch.float64)
    results = []
    for model, inputs in ((here, x), (there, x.cuda())):
        with flipout.hold(model, seed=11, first=2):
            y = model(inputs)
            w = flipout.example_weights(model.get_submodule("0"))["weight"]
        y.square().sum().backward()
        results.append([y.cpu(), w.cpu(), *(p.grad.cpu() for p in model.parameters() if p.grad is not None)])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("prior", [flipout.bayes.Normal(0.0, 0.5), flipout.bayes.ScaleMixture()], ids=str)
def test_same_elbo_and_predictions_as_on_the_cpu(prior: flipout.bayes.Prior) -> None:
    here = flipout.perturb(network(), flipout.MeanField(std=0.1, prior=prior))
    there = copy.deepcopy(here).cuda()
    x, y = torch.randn(7, 3, 5, 5, dtype=torch.float64), torch.arange(7) % 4
    results = []
    for model, inputs, targets in ((here, x, y), (there, x.cuda(), y.cuda())):
        elbo = flipout.bayes.ELBO(model, "categorical", num_data=70)
        with flipout.hold(model, seed=11):
            terms = elbo(inputs, targets)
        terms.loss.backward()
        prediction = flipout.bayes.predict(
            model, inputs, 20, likelihood="categorical", seed=3, chunk=30, quantiles=(0.5,)
        )
        flipout.bayes.Guard(torch.optim.SGD(model.parameters(), 0.1)).step(terms.loss)
        flipout.bayes.prune(model, 0.5)
        results.append(
            [
                terms.loss,
                terms.kl,
                prediction.mean,
                prediction.standard_error,
                prediction.epistemic,
                prediction.quantiles,
            ]
        )
        results[-1] += [parameter.detach() for parameter in model.parameters()]
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs.cpu(), rtol=1e-8, atol=1e-10)


POSTERIORS = {
    "diagonal": lambda model: flipout.perturb(model, flipout.MeanField(std=0.1, prior=flipout.bayes.Normal())),
    "diagonal and directions": lambda model: flipout.perturb(
        model, flipout.LowRankNormal(rank=2, std=0.1, prior=flipout.bayes.Normal())
    ),
    "scales": lambda model: flipout.bayes.rank_one(model, std=0.1),
}


def classifier() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 25, 4)).double()


@pytest.mark.parametrize("scheme", ["flipout", "shared"])
@pytest.mark.parametrize("name", POSTERIORS)
def test_structured_posteriors_learn_as_on_the_cpu(name: str, scheme: SchemeName) -> None:
    here = POSTERIORS[name](classifier())
    there = copy.deepcopy(here).to(DEVICE)
    x, y = torch.randn(7, 3, 5, 5, dtype=torch.float64), torch.arange(7) % 4
    results = []
    for model in (here, there):
        device = next(model.parameters()).device
        elbo = flipout.bayes.ELBO(model, "categorical", num_data=70)
        with flipout.hold(model, seed=11), flipout.using(model, scheme=scheme):
            terms = elbo(x.to(device), y.to(device))
        terms.loss.backward()
        results.append([terms.loss, terms.kl, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert_same(*results)


@pytest.mark.parametrize("joint", [False, True], ids=["apart", "joint"])
@pytest.mark.parametrize("name", POSTERIORS)
def test_mirrored_predictions_as_on_the_cpu(name: str, joint: bool) -> None:
    here = POSTERIORS[name](classifier())
    there = copy.deepcopy(here).to(DEVICE)
    x = torch.randn(7, 3, 5, 5, dtype=torch.float64)
    results = []
    for model, inputs in ((here, x), (there, x.to(DEVICE))):
        found = flipout.bayes.predict(
            model, inputs, 20, likelihood="categorical", seed=3, chunk=30, antithetic=True, joint=joint, keep=True
        )
        results.append([found.mean, found.standard_error, found.total, found.epistemic, found.samples])
        results[-1].append(found.log_prob(torch.arange(7) % 4))  # targets stay on the CPU
        scores = flipout.bayes.evaluate(found, torch.arange(7) % 4)
        assert isinstance(scores, flipout.bayes.Scores)
        results[-1].append(torch.tensor(scores.nll))
    assert_same(*results)


def test_a_prediction_on_the_cpu_takes_targets_of_the_device() -> None:
    prediction = flipout.bayes.Prediction.from_outputs(torch.randn(2, 6, 3), "categorical")
    y = torch.tensor([0, 1, 2, 0, 1, -100])
    assert repr(flipout.bayes.evaluate(prediction, y.to(DEVICE))) == repr(flipout.bayes.evaluate(prediction, y))


@pytest.mark.parametrize("name", ["diagonal", "diagonal and directions"])
@pytest.mark.parametrize("is_rounded", [False, True], ids=["fp64", "bf16"])
def test_formed_weights_of_a_joint_sample_are_those_of_the_draw(name: str, is_rounded: bool, monkeypatch) -> None:
    model = POSTERIORS[name](classifier().to(memory_format=torch.channels_last)).to(DEVICE)  # pyright: ignore[reportCallIssue]
    x = torch.randn(40, 3, 5, 5, dtype=torch.float64, device=DEVICE).to(memory_format=torch.channels_last)

    def samples() -> torch.Tensor | None:
        with torch.autocast(torch.device(DEVICE).type, torch.bfloat16, enabled=is_rounded):
            return flipout.bayes.predict(model, x, 12, seed=3, joint=True, keep=True).samples

    if is_rounded:
        model, x = model.float(), x.float()
    expected = samples()
    monkeypatch.setattr(_fold.Fold, "_forms", lambda *_: True)
    found = samples()
    assert found is not None
    tolerance = 0.05 if is_rounded else 1e-8
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scheme", ["flipout", "shared", "independent"])
def test_bayesian_adapters_as_on_the_cpu(scheme: SchemeName) -> None:
    pytest.importorskip("peft", reason="needs peft")
    pytest.importorskip("transformers", reason="needs transformers")
    from tests.peft.models import bayesian, tokens

    here: nn.Module = bayesian()
    there = copy.deepcopy(here).to(DEVICE)
    results = []
    for model in (here, there):
        inputs = {name: value.to(next(model.parameters()).device) for name, value in tokens().items()}
        with flipout.hold(model, seed=5), flipout.using(model, scheme=scheme):
            logits = model(**inputs).logits
        (logits.square().sum() + flipout.bayes.kl(model)).backward()
        results.append([logits, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(results[0]) > 2
    for mine, theirs in zip(*results, strict=True):  # transformers computes norms and rotations in single precision
        torch.testing.assert_close(mine, theirs.cpu(), rtol=1e-3, atol=1e-6)


def assert_same(here: list[Any], there: list[Any]) -> None:
    for mine, theirs in zip(here, there, strict=True):
        torch.testing.assert_close(mine, theirs.cpu(), rtol=1e-8, atol=1e-10)


def test_signs_are_the_same_bits() -> None:
    seed = torch.tensor(-(2**60) + 17)
    (mine,) = sign_words(seed, KEY, [(1, 1000)], 5, 300)
    (theirs,) = sign_words(seed.cuda(), KEY, [(1, 1000)], 5, 300)
    assert torch.equal(mine, theirs.cpu())


def test_autocast_and_low_precision() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        model = flipout.perturb(
            nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda(), flipout.Gaussian(0.1)
        )
        x = torch.randn(32, 64, device="cuda")
        with flipout.hold(model, seed=1):
            exact = model(x)
        with flipout.hold(model, seed=1), torch.autocast("cuda", dtype):
            rounded = model(x)
        assert rounded.dtype == dtype
        assert (rounded.float() - exact).norm() / exact.norm() < 0.02
        rounded.float().sum().backward()
        model.to(dtype)
        with flipout.hold(model, seed=1):
            assert (model(x.to(dtype)).float() - exact).norm() / exact.norm() < 0.05


# Kernels -----------------------------------------------------------------------------------------------------------
# Every test of tests/ops/triton runs here too; these are about sizes, graphs and compilations.


def test_kernels_are_the_automatic_choice() -> None:
    seed = torch.tensor(3, device="cuda")
    assert chosen("stream_starts", seed) is not None
    assert chosen("stream_starts", seed.cpu()) is None
    with choosing("eager"):
        assert chosen("stream_starts", seed) is None


@pytest.mark.parametrize("kind", ["normal", "uniform", "sign"])
def test_noise_of_a_large_tensor_is_that_of_the_cpu(kind: str) -> None:
    start = stream_starts(torch.tensor(-(2**60)), KEY, NOISE, 0, 3)
    with choosing("triton"):
        assert torch.equal(stream_starts(torch.tensor(-(2**60)).cuda(), KEY, NOISE, 0, 3).cpu(), start)
        numbers = getattr(Stream(start.cuda(), (1001, 1003), torch.float32), kind)()
    expected = getattr(Stream(start, (1001, 1003), torch.float32), kind)()
    torch.testing.assert_close(numbers.cpu(), expected, rtol=2.0**-20 if kind == "normal" else 0.0, atol=0.0)


@pytest.mark.parametrize("kind", ["normal", "sign"])
def test_tensors_of_more_elements_than_an_int32_counts(kind: str) -> None:
    size = 2**31 + 5
    if torch.cuda.mem_get_info()[0] < 3 * size * 2:
        pytest.skip("not enough memory on this device")
    start = stream_starts(torch.tensor(5), KEY, NOISE, 0, 1)
    half = -(-size // 2)
    element = torch.tensor([[0, 1, half - 1, half, half + 1, 2**31 - 1, 2**31, size - 2, size - 1]])
    with choosing("triton"):
        numbers = getattr(Stream(start.cuda(), (size,), torch.bfloat16), kind)()
    alone = getattr(Stream(start.unsqueeze(1), (size,), torch.bfloat16, element), kind)()
    torch.testing.assert_close(numbers[0, element[0].cuda()].cpu(), alone[0], rtol=2.0**-7, atol=0.0)


def test_signs_of_more_elements_than_an_int32_counts() -> None:
    count, features = 2**20, 2**11 + 3
    if torch.cuda.mem_get_info()[0] < 3 * count * features * 2:
        pytest.skip("not enough memory on this device")
    seed = torch.tensor(-1)
    with choosing("triton"):
        (drawn,) = next(sign_batches(seed.cuda(), KEY, [(1, features)], 2**32 - count, count, torch.bfloat16))
    (last,) = next(sign_batches(seed, KEY, [(1, features)], 2**32 - 3, 3, torch.bfloat16))
    assert torch.equal(drawn[-3:].cpu(), last)


def test_kernels_are_compiled_once_for_all_seeds_parameters_and_sizes() -> None:
    kernels = import_module("flipout.ops.triton")

    def draw(seed: int, key: int, first: int, size: int) -> None:
        there = torch.tensor(seed, device="cuda")
        start = stream_starts(there, key, NOISE, first, size)
        for kind in ("normal", "uniform", "sign"):
            getattr(Stream(start, (size,), torch.float32), kind)(first % 7)
        next(sign_batches(there, key, [(0, size), (1, size)], first, size, torch.float32))

    def compiled() -> int:
        launched = [
            kernels.paired_noise._pairs,
            kernels.sign_noise._bits,
            kernels.noise_starts._starts,
            kernels.signs._signs,
        ]
        return sum(len(kernel.device_caches[torch.cuda.current_device()][0]) for kernel in launched)

    with choosing("triton"):
        for size in (1, 3, 64):  # one stream or several, sizes of any number or multiples of 64
            draw(0, 1, 0, size)
        before = compiled()
        for seed, key, first, size in ((-5, 2**61 - 1, 2**32 - 700, 640), (2**63 - 1, 16, 1, 16), (1, 0, 2**31, 33)):
            draw(seed, key, first, size)
    assert compiled() == before


# Recurrent layers --------------------------------------------------------------------------------------------------


def copied(layer: nn.RNNBase) -> nn.RNNBase:
    """torch leaves the weights of a copy in pieces, and warns of them."""
    flattened = copy.deepcopy(layer)
    flattened.flatten_parameters()
    return flattened


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.filterwarnings("error")
def test_shared_weights_run_through_torchs_own_layer_without_a_warning(kind, dtype) -> None:
    plain = kind(6, 10, num_layers=2).to("cuda", dtype)
    layer = flipout.perturb(copied(plain), flipout.MultiplicativeGaussian(0.5), scheme="shared")
    x = torch.randn(4, 3, 6, device="cuda", dtype=dtype, requires_grad=True)
    with flipout.hold(layer, seed=1):
        y, _ = layer(x)
        mine = torch.autograd.grad(y.float().square().sum(), [x, *layer.parameters()])
        weights = {name: w[0] for name, w in flipout.example_weights(layer).items()}
    with torch.no_grad():
        for name, weight in weights.items():
            plain.get_parameter(name).copy_(weight)
    double, wide = plain.double(), x.detach().double().requires_grad_()
    expected, _ = double(wide)
    theirs = torch.autograd.grad(expected.square().sum(), [wide, *double.parameters()])
    rtol, atol = (2e-3, 1e-3) if dtype == torch.float32 else (0.05, 0.02)
    torch.testing.assert_close(y.double(), expected, rtol=rtol, atol=atol)
    torch.testing.assert_close(mine[0].double(), theirs[0], rtol=rtol, atol=atol)
    names = [name for name, _ in layer.named_parameters()]
    for name, gradient, exact_gradient in zip(names, mine[1:], theirs[1:], strict=True):
        seen = weights[name].double() / layer.get_parameter(name).double() if name in weights else 1.0
        torch.testing.assert_close(gradient.double(), exact_gradient * seen, rtol=rtol, atol=5 * atol)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("scheme", ["shared", "flipout"])
def test_a_recurrent_layer_has_the_dtypes_that_autocast_asks_for(kind, scheme) -> None:
    """torch's own takes float16 under autocast whatever it is asked for."""
    plain = kind(6, 10).cuda()
    layer = flipout.perturb(copied(plain), flipout.MultiplicativeGaussian(0.5), scheme=scheme)
    x = torch.randn(4, 3, 6, device="cuda")
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cuda", dtype):
            (y, last), (expected, state) = layer(x), plain(x)
            assert layer(x, state)[0].dtype == dtype
        assert expected.dtype == torch.float16
        states = last if isinstance(last, tuple) else (last,)
        assert {y.dtype, *(part.dtype for part in states)} == {dtype}
        y.float().sum().backward()


@pytest.mark.parametrize(("count", "steps", "width"), [(32, 9, 1000), (40, 5, 650), (64, 3, 1150), (512, 3, 1150)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sequences_at_the_papers_sizes_are_those_of_the_definition(count, steps, width, dtype) -> None:
    torch.manual_seed(0)
    layer = flipout.perturb(nn.LSTM(width, width).cuda(), flipout.MultiplicativeGaussian(0.5), where="weight_hh*")
    x = torch.randn(steps, count, width, device="cuda")
    results = []
    ways: list[tuple[Backend, torch.dtype]] = [("eager", torch.float64), ("eager", dtype), ("triton", dtype)]
    for backend, place in ways:
        model = copy.deepcopy(layer).to(place)
        with flipout.hold(model, seed=3), choosing(backend):
            y, (h, c) = model(x.to(place))
            loss = y.double().square().sum() + h.double().sum() + c.double().square().sum()
            results.append([y, h, c, *torch.autograd.grad(loss, list(model.parameters()))])
    for exact, eager, mine in zip(*results, strict=True):
        size = exact.norm()
        error, bound = (mine - exact).norm() / size, (eager - exact).norm() / size
        assert error <= 2 * bound + 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("scheme", ["shared", "flipout"])
def test_gradients_of_a_held_pass_in_eval_mode(scheme: SchemeName) -> None:
    """cuDNN itself refuses them there."""
    layer = flipout.perturb(nn.LSTM(6, 10, num_layers=2, dropout=0.5).cuda(), flipout.Gaussian(0.1), scheme=scheme)
    x = torch.randn(4, 3, 6, device="cuda")
    with flipout.hold(layer.eval(), seed=1):
        first, again = (torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters())) for _ in range(2))
    torch.testing.assert_close(first, again)


@pytest.mark.filterwarnings("error")
def test_eval_is_torchs_own_layer_to_the_bit() -> None:
    plain = nn.LSTM(6, 10, num_layers=2, bidirectional=True).cuda()
    layer = flipout.perturb(copied(plain), flipout.MultiplicativeGaussian(0.5)).eval()
    x = torch.randn(4, 3, 6, device="cuda")
    assert torch.equal(layer(x)[0], plain.eval()(x)[0])


@pytest.mark.parametrize("scheme", [flipout.Flipout(), flipout.LowRank(1), flipout.LowRank(3)], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sums_over_a_population_in_half_precision(scheme: flipout.Scheme, size: float, dtype: torch.dtype) -> None:
    model = flipout.perturb(torch.nn.Linear(70, 48), flipout.Gaussian(0.1), scheme=scheme, where="*")
    coefficients = size * torch.randn(3000, dtype=torch.float64)
    with torch.no_grad(), flipout.hold(model.double(), 3):
        exact = {id(parameter): total for parameter, total in weighted_sums(model, coefficients)}
        exact = [exact[id(parameter)] for parameter in model.parameters()]
    model = model.to("cuda", dtype)
    with torch.no_grad(), flipout.hold(model, 3):
        totals = {id(parameter): total for parameter, total in weighted_sums(model, coefficients)}
    for parameter, truth in zip(model.parameters(), exact, strict=True):
        error = totals[id(parameter)].double().cpu() - truth
        assert error.norm() <= 2.0**-6 * truth.norm()
