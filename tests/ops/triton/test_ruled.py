"""Regularised LSTMs by kernels compute what their loops do, with their gradients."""

import copy
from typing import Any

import pytest
import torch

from flipout.backend import using
from flipout.regularizers import RecurrentDropoutLSTM, RegularizedLSTM, VariationalLSTM, ZarembaLSTM, ZoneoutLSTM
from tests.ops.triton.kernels import DEVICE, MARKS

pytestmark = MARKS
KINDS: dict[str, tuple[type[RegularizedLSTM], dict[str, Any]]] = {
    "zaremba": (ZarembaLSTM, {"dropout": 0.5}),
    "variational": (VariationalLSTM, {"p_input": 0.35, "p_hidden": 0.2}),
    "recurrent": (RecurrentDropoutLSTM, {"p": 0.3}),
    "recurrent, per sequence": (RecurrentDropoutLSTM, {"p": 0.3, "per_step": False}),
    "recurrent, of states": (RecurrentDropoutLSTM, {"p": 0.3, "on": "state"}),
    "zoneout": (ZoneoutLSTM, {"zoneout_h": 0.2, "zoneout_c": 0.5}),
}


def results(lstm: RegularizedLSTM, x: torch.Tensor, state: tuple, backend: str, autocast: bool) -> list[torch.Tensor]:
    """Outputs, states and gradients under the same masks."""
    own = copy.deepcopy(lstm).to(DEVICE)
    given = [part.clone().to(DEVICE).requires_grad_() for part in (x, *state)]
    torch.manual_seed(1)
    half = torch.autocast(DEVICE.type, torch.bfloat16, enabled=autocast)
    with using(backend), half:  # pyright: ignore[reportArgumentType]
        y, (h, c) = own(given[0], (given[1], given[2]))
    weights = torch.linspace(-1, 1, y.numel(), device=DEVICE).view(y.shape)
    ((y.float() * weights).sum() + h.float().square().sum() + c.float().sum()).backward()
    grads = [leaf.grad for leaf in (*given, *own.parameters())]
    return [part.detach().double().cpu() for part in (y, h, c, *grads) if part is not None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(("count", "steps", "width"), [(3, 5, 7), (1, 1, 4), (5, 3, 70)])
def test_kernels_are_the_loop(kind, autocast, count, steps, width):
    layer, options = KINDS[kind]
    lstm = layer(6, width, batch_first=True, **options)
    x, state = torch.randn(count, steps, 6), tuple(torch.randn(1, count, width) for _ in range(2))
    made, loop = (results(lstm, x, state, backend, autocast) for backend in ("triton", "eager"))
    assert len(made) == len(loop) == 10
    error = 0.05 if autocast else 1e-4
    for own, other in zip(made, loop, strict=True):
        torch.testing.assert_close(own, other, rtol=error, atol=error)


@pytest.mark.parametrize("kind", KINDS)
def test_gates_that_are_nearly_open(kind):
    """In half precision, which rounds 1 − f away: no further from double precision than twice what the loop is."""
    layer, options = KINDS[kind]
    lstm = layer(6, 7, batch_first=True, **options)
    with torch.no_grad():
        lstm.get_parameter("bias_ih_l0")[7:14] += 7
    x, state = torch.randn(3, 5, 6), tuple(torch.randn(1, 3, 7) for _ in range(2))
    exact = results(lstm.double(), x.double(), tuple(part.double() for part in state), "eager", False)
    half = lstm.half(), x.half(), tuple(part.half() for part in state)
    made, loop = (results(*half, backend, False) for backend in ("triton", "eager"))
    for own, other, truth in zip(made, loop, exact, strict=True):
        error, allowed = (own - truth).norm(), 2 * (other - truth).norm()
        assert error <= allowed + 4 * torch.finfo(torch.float16).eps * truth.norm()


def test_two_layers_with_dropout_between():
    lstm = ZoneoutLSTM(6, 6, 2, zoneout_h=0.2, zoneout_c=0.4)
    x, state = torch.randn(4, 3, 6), tuple(torch.randn(2, 3, 6) for _ in range(2))
    for own, other in zip(*(results(lstm, x, state, one, False) for one in ("triton", "eager")), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)
