"""The same numbers on a CUDA device, and draws inside of captured graphs."""

import copy

import pytest
import torch
from torch import nn

import flipout

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


def test_signs_are_the_same_bits() -> None:
    from flipout.random import key_schedule, sign_words

    seed = torch.tensor(-(2**60) + 17)
    (mine,) = sign_words(key_schedule(seed), 12345678901, [(1, 1000)], 5, 300)
    (theirs,) = sign_words(key_schedule(seed.cuda()), 12345678901, [(1, 1000)], 5, 300)
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
