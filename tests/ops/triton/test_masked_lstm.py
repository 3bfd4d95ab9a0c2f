"""Regularised LSTMs by kernels compute what their loops compute, with their gradients."""

import copy
from typing import Any

import pytest
import torch

from flipout.backend import choosing
from flipout.regularizers import RecurrentDropoutLSTM, RegularizedLSTM, VariationalLSTM, ZarembaLSTM, ZoneoutLSTM
from tests.ops.triton.kernels import DEVICE, MARKS

pytestmark = MARKS
KINDS: dict[str, tuple[type[RegularizedLSTM], dict[str, Any]]] = {
    "zaremba": (ZarembaLSTM, {"dropout": 0.5}),
    "variational": (VariationalLSTM, {"p_input": 0.35, "p_hidden": 0.2}),
    "recurrent": (RecurrentDropoutLSTM, {"p": 0.3}),
    "recurrent, per sequence": (RecurrentDropoutLSTM, {"p": 0.3, "per_step": False}),
    "recurrent, on states": (RecurrentDropoutLSTM, {"p": 0.3, "on": "state"}),
    "zoneout": (ZoneoutLSTM, {"zoneout_h": 0.2, "zoneout_c": 0.5}),
}


def results(lstm: RegularizedLSTM, x: torch.Tensor, state: tuple, backend: str, autocast: bool) -> list[torch.Tensor]:
    """Return outputs, states and gradients. The masks are equal in every call."""
    clone = copy.deepcopy(lstm).to(DEVICE)
    leaves = [part.clone().to(DEVICE).requires_grad_() for part in (x, *state)]
    torch.manual_seed(1)
    half = torch.autocast(DEVICE.type, torch.bfloat16, enabled=autocast)
    with choosing(backend), half:  # pyright: ignore[reportArgumentType]
        y, (h, c) = clone(leaves[0], (leaves[1], leaves[2]))
    weights = torch.linspace(-1, 1, y.numel(), device=DEVICE).view(y.shape)
    ((y.float() * weights).sum() + h.float().square().sum() + c.float().sum()).backward()
    grads = [leaf.grad for leaf in (*leaves, *clone.parameters())]
    return [part.detach().double().cpu() for part in (y, h, c, *grads) if part is not None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(("count", "steps", "width"), [(3, 5, 7), (1, 1, 4), (5, 3, 70)])
def test_kernels_agree_with_the_loop(kind: str, autocast: bool, count: int, steps: int, width: int) -> None:
    layer, options = KINDS[kind]
    lstm = layer(6, width, batch_first=True, **options)
    x, state = torch.randn(count, steps, 6), tuple(torch.randn(1, count, width) for _ in range(2))
    by_kernel, by_loop = (results(lstm, x, state, backend, autocast) for backend in ("triton", "eager"))
    assert len(by_kernel) == len(by_loop) == 10
    error = 0.05 if autocast else 1e-4
    for actual, expected in zip(by_kernel, by_loop, strict=True):
        torch.testing.assert_close(actual, expected, rtol=error, atol=error)


@pytest.mark.parametrize("kind", KINDS)
def test_gates_that_are_nearly_open(kind: str) -> None:
    """Half precision rounds 1 − f away. The error may be at most twice the loop's."""
    layer, options = KINDS[kind]
    lstm = layer(6, 7, batch_first=True, **options)
    with torch.no_grad():
        lstm.get_parameter("bias_ih_l0")[7:14] += 7
    x, state = torch.randn(3, 5, 6), tuple(torch.randn(1, 3, 7) for _ in range(2))
    exact = results(lstm.double(), x.double(), tuple(part.double() for part in state), "eager", False)
    half = lstm.half(), x.half(), tuple(part.half() for part in state)
    by_kernel, by_loop = (results(*half, backend, False) for backend in ("triton", "eager"))
    for actual, eager, truth in zip(by_kernel, by_loop, exact, strict=True):
        error, allowed = (actual - truth).norm(), 2 * (eager - truth).norm()
        assert error <= allowed + 4 * torch.finfo(torch.float16).eps * truth.norm()


def test_two_layers() -> None:
    lstm = ZoneoutLSTM(6, 6, 2, zoneout_h=0.2, zoneout_c=0.4)
    x, state = torch.randn(4, 3, 6), tuple(torch.randn(2, 3, 6) for _ in range(2))
    by_kernel, by_loop = (results(lstm, x, state, backend, False) for backend in ("triton", "eager"))
    for actual, expected in zip(by_kernel, by_loop, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
