"""Populations under kernels and under eager code."""

import copy

import torch
from torch import Tensor, nn

import flipout
from flipout.backend import Backend, using
from tests.ops.triton.kernels import DEVICE

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def forward(model: nn.Module, x: Tensor, dtype: torch.dtype, backend: Backend, **fields) -> Tensor:
    own = copy.deepcopy(model).to(DEVICE, dtype)
    with torch.no_grad(), using(backend), flipout.hold(own, 7, **fields):
        return own(x.to(DEVICE, dtype)).double().cpu()


def trained(model: nn.Module, x: Tensor, dtype: torch.dtype, backend: Backend, **fields) -> list[Tensor]:
    """The output, and the gradients of the input and of all Parameters."""
    own = copy.deepcopy(model).to(DEVICE, dtype)
    inputs = x.to(DEVICE, dtype).detach().requires_grad_()
    with using(backend), flipout.hold(own, 7, **fields):
        y = own(inputs)
        slopes = torch.linspace(-1, 1, y.numel(), device=DEVICE, dtype=torch.float64).view(y.shape)
        made = torch.autograd.grad(y, [inputs, *own.parameters()], torch.empty_like(y).copy_(slopes))
    return [one.detach().double().cpu() for one in (y, *made)]


def assert_trained(model: nn.Module, x: Tensor, dtype: torch.dtype, **fields) -> None:
    made, eager = trained(model, x, dtype, "triton", **fields), trained(model, x, dtype, "eager", **fields)
    exact = eager if dtype in TOLERANCE else trained(model, x, torch.float64, "eager", **fields)
    for own, definition, truth in zip(made, eager, exact, strict=True):
        if dtype in TOLERANCE:
            torch.testing.assert_close(own, definition, rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])
        else:
            assert_within_twice(own, definition, truth, dtype == torch.bfloat16 and DEVICE.type == "cpu")


def assert_within_twice(made: Tensor, eager: Tensor, exact: Tensor, cut: bool = False) -> None:
    """The error that half precision may have: at most twice that of the definition; of numbers that are cut and not
    rounded, as the interpreter does with bfloat16, twice that again."""
    error, allowed = (made - exact).square().mean().sqrt(), (eager - exact).square().mean().sqrt()
    room = 4 if cut else 2
    assert error <= room * allowed
    assert (made - exact).abs().max() <= 2 * room * (eager - exact).abs().max()


def assert_forward(model: nn.Module, x: Tensor, dtype: torch.dtype, **fields) -> None:
    made, eager = forward(model, x, dtype, "triton", **fields), forward(model, x, dtype, "eager", **fields)
    if dtype in TOLERANCE:
        torch.testing.assert_close(made, eager, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    else:
        exact = forward(model, x, torch.float64, "eager", **fields)
        assert_within_twice(made, eager, exact, dtype == torch.bfloat16 and DEVICE.type == "cpu")
