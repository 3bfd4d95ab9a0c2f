"""Draws inside captured graphs, and captured training steps."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import flipout
from flipout.backend import choosing
from tests.test_gpu import network

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


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
        losses = []
        for _ in range(4):
            graph.replay()
            losses.append(loss.item())
        return losses

    first, second = replays(), replays()
    assert len(set(first)) == 4
    assert first == second


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch.compile warns about graphs, leaves and tf32
def test_a_compiled_training_step_draws_anew_at_every_replay_and_repeats_with_the_seed() -> None:
    model = flipout.perturb(network().cuda().float(), flipout.MeanField(std=0.1))
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    x = torch.randn(7, 3, 5, 5, device="cuda")

    @torch.compile(mode="reduce-overhead")
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def replays() -> list[float]:
        torch.cuda.manual_seed(3)
        return [step(x).item() for _ in range(4)]

    counters.clear()
    for _ in range(3):
        step(x)
    assert not counters["inductor"]["cudagraph_skips"]
    first, second = replays(), replays()
    assert len(set(first)) == 4
    assert first == second


def test_a_graph_reads_the_seed_at_every_replay() -> None:
    model = flipout.perturb(network().cuda(), flipout.MeanField(std=0.1))
    x, seed = torch.randn(7, 3, 5, 5, device="cuda", dtype=torch.float64), torch.tensor(1, device="cuda")

    def output() -> torch.Tensor:
        with choosing("triton"), flipout.hold(model, seed=seed), torch.no_grad():
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
        with choosing("eager"), flipout.hold(model, seed=value), torch.no_grad():
            torch.testing.assert_close(captured, model(x))


def trained(captured: bool, steps: int = 8) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = flipout.perturb(nn.LSTM(12, 20, batch_first=True).cuda(), flipout.MultiplicativeGaussian(0.5))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = [torch.randn(7 if i + 1 < steps else 4, 5, 12, device="cuda") for i in range(steps)]

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = flipout.capture(step) if captured else step
    losses = [run(x).clone() for x in batches]
    return [*losses, *model.parameters()]


def test_a_captured_training_step_takes_the_same_steps() -> None:
    for mine, theirs in zip(trained(True), trained(False), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_an_unreferenced_graph_does_not_break_the_next_capture() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.step = flipout.capture(self.double)

        def double(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    def collecting(x: torch.Tensor) -> torch.Tensor:
        gc.collect()
        return 3 * x

    x = torch.ones(3, device="cuda")
    cycle, captured = Cycle(), flipout.capture(collecting)
    for _ in range(3):
        cycle.step(x)
    captured(x)
    captured(x)
    gc.disable()
    try:
        del cycle
        captured(x)
    finally:
        gc.enable()
    assert captured.graph is not None
    assert captured(x).tolist() == [3.0, 3.0, 3.0]


def test_a_step_that_cannot_be_captured_runs_uncaptured_with_a_warning() -> None:
    captured = flipout.capture(lambda x: x * x.sum().item())
    x = torch.ones(2, device="cuda")
    for call in range(4):
        if call == 2:
            with pytest.warns(UserWarning, match="cannot be captured"):
                assert captured(x).tolist() == [2.0, 2.0]
        else:
            assert captured(x).tolist() == [2.0, 2.0]
    with torch.random.fork_rng():
        drawn = [torch.manual_seed(1) and torch.rand(3, device="cuda").tolist() for _ in range(2)]
    assert drawn[0] == drawn[1]  # torch's generator still works
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_a_capture_that_failed_once_is_tried_again() -> None:
    captures = []

    def step(x: torch.Tensor) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            captures.append(1)
            return x * x.sum().item() if len(captures) == 1 else 3 * x
        return 3 * x

    captured, x = flipout.capture(step), torch.ones(2, device="cuda")
    captured(x)
    captured(x)
    with pytest.warns(UserWarning, match=r"cannot be captured \(try 1 of 3\)"):
        assert captured(x).tolist() == [3.0, 3.0]
    for _ in range(4):
        assert captured(x).tolist() == [3.0, 3.0]
    assert captured.graph is not None
    assert len(captures) == 2


FIRST_THING = """
import warnings
warnings.simplefilter("error")
import torch
import flipout
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(512, 512, device="cuda", dtype=torch.bfloat16)
model = flipout.perturb(layer, flipout.MeanField(std=0.1), scheme="shared")
parameters = list(model.parameters())
x = torch.randn(8192, 512, device="cuda", dtype=torch.bfloat16)

def step(x):
    return torch.autograd.grad(LOSS, parameters)

captured = flipout.capture(step)
for _ in range(5):
    gradients = captured(x)
assert captured.graph is not None
assert all(bool(gradient.isfinite().all()) for gradient in gradients)
"""


@pytest.mark.parametrize("loss", ["model(x).sum()", "model(x).float().square().mean()"])
def test_a_step_can_be_captured_before_anything_else_ran_on_the_device(loss: str) -> None:
    """The gradient of a sum needs no kernel, so that a product is the first kernel that autograd's thread launches."""
    code, root = FIRST_THING.replace("LOSS", loss), Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
