"""Models under kernels and under eager code, compared."""

import copy

import torch
from torch import Tensor, nn

import flipout
from flipout.backend import Backend, choosing
from tests.ops.triton.kernels import DEVICE

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def forward(model: nn.Module, x: Tensor, dtype: torch.dtype, backend: Backend, **fields) -> Tensor:
    """Return the output under a held draw, in double precision on the CPU."""
    clone = copy.deepcopy(model).to(DEVICE, dtype)
    with torch.no_grad(), choosing(backend), flipout.hold(clone, 7, **fields):
        return clone(x.to(DEVICE, dtype)).double().cpu()


def trained(model: nn.Module, x: Tensor, dtype: torch.dtype, backend: Backend, **fields) -> list[Tensor]:
    """Return the output, and the gradients of the input and of all Parameters."""
    clone = copy.deepcopy(model).to(DEVICE, dtype)
    inputs = x.to(DEVICE, dtype).detach().requires_grad_()
    with choosing(backend), flipout.hold(clone, 7, **fields):
        y = clone(inputs)
        slopes = torch.linspace(-1, 1, y.numel(), device=DEVICE, dtype=torch.float64).view(y.shape)
        grads = torch.autograd.grad(y, [inputs, *clone.parameters()], torch.empty_like(y).copy_(slopes))
    return [tensor.detach().double().cpu() for tensor in (y, *grads)]


def assert_trained(model: nn.Module, x: Tensor, dtype: torch.dtype, **fields) -> None:
    by_kernel, by_definition = (trained(model, x, dtype, backend, **fields) for backend in ("triton", "eager"))
    exact = by_definition if dtype in TOLERANCE else trained(model, x, torch.float64, "eager", **fields)
    for actual, eager, truth in zip(by_kernel, by_definition, exact, strict=True):
        if dtype in TOLERANCE:
            torch.testing.assert_close(actual, eager, rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])
        else:
            assert_within_twice(actual, eager, truth, dtype == torch.bfloat16 and DEVICE.type == "cpu")


def assert_within_twice(actual: Tensor, eager: Tensor, exact: Tensor, truncated: bool = False) -> None:
    """Allow half precision at most twice the error of the definition.

    The interpreter truncates to bfloat16 instead of rounding, which is allowed twice as much again.
    """
    error, allowed = (actual - exact).square().mean().sqrt(), (eager - exact).square().mean().sqrt()
    room = 4 if truncated else 2
    assert error <= room * allowed
    assert (actual - exact).abs().max() <= 2 * room * (eager - exact).abs().max()


def assert_forward(model: nn.Module, x: Tensor, dtype: torch.dtype, **fields) -> None:
    by_kernel, by_definition = (forward(model, x, dtype, backend, **fields) for backend in ("triton", "eager"))
    if dtype in TOLERANCE:
        torch.testing.assert_close(by_kernel, by_definition, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    else:
        exact = forward(model, x, torch.float64, "eager", **fields)
        assert_within_twice(by_kernel, by_definition, exact, dtype == torch.bfloat16 and DEVICE.type == "cpu")
