"""The same numbers on a CUDA device, and draws inside of captured graphs."""

import copy
from importlib import import_module

import pytest
import torch
from torch import nn

import flipout
from flipout.backend import chosen, using
from flipout.random import key_schedule, sign_words, signs
from flipout.streams import NOISE, Stream, stream_starts

KEY = 12345678901
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
        made = flipout.bayes.predict(model, inputs, 20, likelihood="categorical", seed=3, chunk=30, quantiles=(0.5,))
        flipout.bayes.Guard(torch.optim.SGD(model.parameters(), 0.1)).step(terms.loss)
        flipout.bayes.prune(model, 0.5)
        results.append([terms.loss, terms.kl, made.mean, made.standard_error, made.epistemic, made.quantiles])
        results[-1] += [parameter.detach() for parameter in model.parameters()]
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs.cpu(), rtol=1e-8, atol=1e-10)


def test_signs_are_the_same_bits() -> None:
    seed = torch.tensor(-(2**60) + 17)
    (mine,) = sign_words(key_schedule(seed), KEY, [(1, 1000)], 5, 300)
    (theirs,) = sign_words(key_schedule(seed.cuda()), KEY, [(1, 1000)], 5, 300)
    assert torch.equal(mine, theirs.cpu())


def test_captured_graph_draws_anew_at_every_replay_and_repeats_with_the_seed() -> None:
    model = flipout.perturb(network().cuda().float(), flipout.MeanField(std=0.1))
    x = torch.randn(7, 3, 5, 5, device="cuda")

    def step() -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replays() -> list[float]:
        torch.cuda.manual_seed(3)
        seen = []
        for _ in range(4):
            graph.replay()
            seen.append(loss.item())
        return seen

    once, again = replays(), replays()
    assert len(set(once)) == 4
    assert once == again


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
    with using("eager"):
        assert chosen("stream_starts", seed) is None


@pytest.mark.parametrize("kind", ["normal", "uniform", "sign"])
def test_noise_of_a_large_tensor_is_that_of_the_cpu(kind: str) -> None:
    start = stream_starts(torch.tensor(-(2**60)), KEY, NOISE, 0, 3)
    with using("triton"):
        assert torch.equal(stream_starts(torch.tensor(-(2**60)).cuda(), KEY, NOISE, 0, 3).cpu(), start)
        made = getattr(Stream(start.cuda(), (1001, 1003), torch.float32), kind)()
    expected = getattr(Stream(start, (1001, 1003), torch.float32), kind)()
    torch.testing.assert_close(made.cpu(), expected, rtol=2.0**-20 if kind == "normal" else 0.0, atol=0.0)


@pytest.mark.parametrize("kind", ["normal", "sign"])
def test_tensors_of_more_elements_than_an_int32_counts(kind: str) -> None:
    size = 2**31 + 5
    if torch.cuda.mem_get_info()[0] < 3 * size * 2:
        pytest.skip("not enough memory on this device")
    start = stream_starts(torch.tensor(5), KEY, NOISE, 0, 1)
    half = -(-size // 2)
    element = torch.tensor([[0, 1, half - 1, half, half + 1, 2**31 - 1, 2**31, size - 2, size - 1]])
    with using("triton"):
        made = getattr(Stream(start.cuda(), (size,), torch.bfloat16), kind)()
    alone = getattr(Stream(start.unsqueeze(1), (size,), torch.bfloat16, element), kind)()
    torch.testing.assert_close(made[0, element[0].cuda()].cpu(), alone[0], rtol=2.0**-7, atol=0.0)


def test_signs_of_more_elements_than_an_int32_counts() -> None:
    count, features = 2**20, 2**11 + 3
    if torch.cuda.mem_get_info()[0] < 3 * count * features * 2:
        pytest.skip("not enough memory on this device")
    keys = key_schedule(torch.tensor(-1))
    with using("triton"):
        (made,) = next(signs(keys.cuda(), KEY, [(1, features)], 2**32 - count, count, torch.bfloat16))
    (last,) = next(signs(keys, KEY, [(1, features)], 2**32 - 3, 3, torch.bfloat16))
    assert torch.equal(made[-3:].cpu(), last)


def test_a_graph_reads_the_seed_at_every_replay() -> None:
    model = flipout.perturb(network().cuda(), flipout.MeanField(std=0.1))
    x, seed = torch.randn(7, 3, 5, 5, device="cuda", dtype=torch.float64), torch.tensor(1, device="cuda")

    def output() -> torch.Tensor:
        with using("triton"), flipout.hold(model, seed=seed), torch.no_grad():
            return model(x)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        output()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = output()
    for value in (1, 2, -3):
        seed.fill_(value)
        graph.replay()
        with using("eager"), flipout.hold(model, seed=value), torch.no_grad():
            torch.testing.assert_close(captured, model(x))


def test_kernels_are_compiled_once_for_all_seeds_parameters_and_sizes() -> None:
    kernels = import_module("flipout.ops.triton")

    def draw(seed: int, key: int, first: int, size: int) -> None:
        there = torch.tensor(seed, device="cuda")
        start = stream_starts(there, key, NOISE, first, size)
        for kind in ("normal", "uniform", "sign"):
            getattr(Stream(start, (size,), torch.float32), kind)(first % 7)
        next(signs(key_schedule(there), key, [(0, size), (1, size)], first, size, torch.float32))

    def compiled() -> int:
        own = [kernels.streams._halves, kernels.streams._bits, kernels.streams._starts, kernels.random._signs]
        return sum(len(kernel.device_caches[torch.cuda.current_device()][0]) for kernel in own)

    with using("triton"):
        draw(0, 1, 0, 1)
        before = compiled()
        for seed, key, first, size in ((-5, 2**61 - 1, 2**32 - 700, 640), (2**63 - 1, 16, 1, 16), (1, 0, 2**31, 33)):
            draw(seed, key, first, size)
    assert compiled() == before
