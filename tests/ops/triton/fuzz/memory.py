"""Tensors with drawn memory layouts, amid numbers that no kernel may read or overwrite."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from flipout.backend import choosing
from tests.ops.triton.kernels import DEVICE
from tests.poison import poisoned, worst

# compute-sanitizer sees where an allocation ends. Each tensor then has its own allocation, with nothing around it.
ROOM = 0 if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") else 1024
_LAYOUTS = ("rows", "rows", "rows", "channels last", "channels last", "any order", "gaps", "padded", "expanded")
CHANNELS = ("channels last",) * 9 + _LAYOUTS
# Tolerance by dtype, relative to the largest number: far above rounding, far below the error of a wrong place.
NEAR = {torch.float64: 1e-11, torch.float32: 2.0**-15, torch.float16: 2.0**-6, torch.bfloat16: 2.0**-4}
FLOATS = st.sampled_from(list(NEAR))
NARROW = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])

Draw = Callable[[st.SearchStrategy[Any]], Any]
Results = Sequence[Tensor | None]


class _Placed(NamedTuple):
    buffer: Tensor
    is_inside: Tensor  # where in the buffer the tensor lies
    tensor: Tensor
    before: Tensor | None  # a copy of the tensor, if it may not change


class Memory:
    """The inputs of one call in drawn layouts, and a comparison of kernel and definition on them."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self._placed: list[_Placed] = []
        self._generator = torch.Generator().manual_seed(0)

    def numbers(
        self,
        *shape: int,
        dtype: torch.dtype,
        written: bool = False,
        may_be_negated: bool = False,
        layouts: Sequence[str] = _LAYOUTS,
    ) -> Tensor:
        """Draw normal numbers. With `written`, a kernel may write to them.

        An input that is passed to `fits` `may_be_negated`: it may have torch's negative bit, as the imaginary part of a
        conjugate does. All other tensors are results of operations, which do not have it.
        """
        values = torch.randn(shape, generator=self._generator, dtype=torch.float64).to(dtype)
        tensor = self._put(values, written, layouts)
        is_negated = may_be_negated and self.draw(st.sampled_from([False] * 7 + [True]))
        return torch._neg_view(tensor) if is_negated else tensor

    def signs(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return self._put(1 - 2 * torch.randint(2, shape, generator=self._generator).to(dtype), False)

    def masks(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return self._put(torch.randint(2, shape, generator=self._generator).to(dtype), False)

    def seeds(self, *shape: int) -> Tensor:
        return self._put(torch.randint(-(2**63), 2**63 - 1, shape, generator=self._generator), False)

    def compare(
        self, make: Callable[..., Results], *inputs: Tensor | None, near: float = 0.0, rtol: float = 0.0
    ) -> None:
        """Compare `make` of the inputs, where kernels may serve, with the definition on copies on a CPU.

        `near` is an absolute tolerance relative to the largest number. Without it, results must be equal to the bit.
        """
        copies = [None if tensor is None else _copied(tensor) for tensor in inputs]
        with choosing("eager"):
            expected = make(*copies)
        with choosing("triton"), poisoned(self._around):
            results = make(*inputs)
        for actual, truth in zip(results, expected, strict=True):
            assert (actual is None) == (truth is None)
            if actual is None or truth is None:
                continue
            actual, truth = actual.detach().cpu(), truth.detach()
            assert actual.dtype == truth.dtype
            if not near:
                assert actual.shape == truth.shape
                assert torch.equal(actual, truth)
                continue
            size = max(1.0, float(truth.abs().max())) if truth.numel() else 1.0
            torch.testing.assert_close(actual.double(), truth.double(), rtol=rtol, atol=near * size)
        self._check()

    def _put(self, values: Tensor, written: bool, layouts: Sequence[str] = _LAYOUTS) -> Tensor:
        layout = self.draw(st.sampled_from(layouts))
        layout = "rows" if written and layout == "expanded" else layout
        strides, values = self._strides(layout, values)
        extent = 1 + sum((size - 1) * stride for size, stride in zip(values.shape, strides, strict=True))
        offset = ROOM + self.draw(st.sampled_from([0, 0, 1, 2, 16]))
        return self._laid(values, strides, offset, extent if values.numel() else 0, keep=not written)

    def _strides(self, layout: str, values: Tensor) -> tuple[list[int], Tensor]:
        order = list(range(values.dim()))
        if layout == "channels last" and values.dim() > 2:
            order = [0, *order[2:], 1]
        elif layout == "any order":
            order = self.draw(st.permutations(order))
        strides, stride, is_padded = [0] * len(order), 2 if layout == "gaps" else 1, layout == "padded"
        for dim in reversed(order):
            size = values.shape[dim]
            if size == 1:  # its stride is never used, so it may be anything
                strides[dim] = self.draw(st.sampled_from([stride, 0, 1, 3]))
                continue
            strides[dim], stride = stride, stride * max(size, 1)
            if is_padded:
                stride, is_padded = stride + 3, False
        if layout == "expanded" and order and values.numel():
            dim = self.draw(st.sampled_from(order))
            strides[dim], values = 0, values.narrow(dim, 0, 1).expand(values.shape)
        return strides, values

    def _laid(self, values: Tensor, strides: Sequence[int], offset: int, extent: int, keep: bool) -> Tensor:
        """Put the values into the middle of a new buffer."""
        buffer = torch.full((offset + extent + ROOM,), worst(values.dtype), dtype=values.dtype, device=DEVICE)
        is_inside = torch.zeros(len(buffer), dtype=torch.bool, device=DEVICE)
        if values.numel():
            place = sum(
                (
                    (torch.arange(size) * stride).view(-1, *[1] * (values.dim() - 1 - dim))
                    for dim, (size, stride) in enumerate(zip(values.shape, strides, strict=True))
                ),
                torch.tensor(offset),
            )
            places = place.expand(values.shape).flatten().to(DEVICE)
            buffer[places], is_inside[places] = values.flatten().to(DEVICE), True
        tensor = buffer.as_strided(values.shape, strides, offset)
        self._placed.append(_Placed(buffer, is_inside, tensor, tensor.clone() if keep else None))
        return tensor

    def _around(self, empty: Tensor) -> Tensor:
        """Do likewise with memory that a launch allocates."""
        if empty.device.type != DEVICE.type or not empty.numel():
            return empty
        extent = 1 + sum((size - 1) * stride for size, stride in zip(empty.shape, empty.stride(), strict=True))
        return self._laid(empty.cpu(), empty.stride(), ROOM, extent, keep=False)

    def _check(self) -> None:
        for buffer, is_inside, tensor, before in self._placed:
            is_poison = buffer.float().isnan() if buffer.is_floating_point() else buffer == worst(buffer.dtype)
            shape = tuple(tensor.shape)
            assert (is_poison | is_inside).all(), f"wrote around a tensor of {shape} with strides {tensor.stride()}"
            assert before is None or torch.equal(tensor, before), f"wrote to an input of {shape}"


def _copied(tensor: Tensor) -> Tensor:
    copy = tensor.detach().resolve_neg().to("cpu", copy=True).contiguous()
    return copy.requires_grad_(tensor.requires_grad)
