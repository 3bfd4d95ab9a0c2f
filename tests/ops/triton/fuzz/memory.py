"""Tensors that lie in memory in drawn ways, amid numbers that nobody may read or write."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from flipout.backend import using
from tests.ops.triton.kernels import DEVICE
from tests.poison import poisoned, worst

# compute-sanitizer sees where an allocation ends; each tensor then has one of its own, and nothing around it.
_ROOM = 0 if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") else 1024
_LAYOUTS = ("rows", "rows", "rows", "channels last", "channels last", "any order", "gaps", "padded", "expanded")
CHANNELS = ("channels last",) * 9 + _LAYOUTS
# Of the largest number, by dtype: far above what rounds, far below what a wrong place gives.
NEAR = {torch.float64: 1e-11, torch.float32: 2.0**-15, torch.float16: 2.0**-6, torch.bfloat16: 2.0**-4}
FLOATS = st.sampled_from(list(NEAR))
NARROW = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])

Draw = Callable[[st.SearchStrategy[Any]], Any]
Made = Sequence[Tensor | None]


class _Placed(NamedTuple):
    buffer: Tensor
    inside: Tensor  # where in the buffer the tensor lies
    tensor: Tensor
    before: Tensor | None  # of an input that stays as it is


class Memory:
    """The inputs of one call in drawn layouts, and how to compare what kernels and definitions make of them."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self._placed: list[_Placed] = []
        self._generator = torch.Generator().manual_seed(0)

    def numbers(
        self,
        *shape: int,
        dtype: torch.dtype,
        written: bool = False,
        asked: bool = False,
        layouts: Sequence[str] = _LAYOUTS,
    ) -> Tensor:
        """Normal numbers; `written` if a kernel may write to them. What a kernel is `asked` about may have torch's
        negative bit, as the imaginary part of a conjugate does; all else comes out of operations, without it."""
        values = torch.randn(shape, generator=self._generator, dtype=torch.float64).to(dtype)
        made = self._put(values, written, layouts)
        return torch._neg_view(made) if asked and self.draw(st.sampled_from([False] * 7 + [True])) else made

    def signs(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return self._put(1 - 2 * torch.randint(2, shape, generator=self._generator).to(dtype), False)

    def masks(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return self._put(torch.randint(2, shape, generator=self._generator).to(dtype), False)

    def seeds(self, *shape: int) -> Tensor:
        return self._put(torch.randint(-(2**63), 2**63 - 1, shape, generator=self._generator), False)

    def compare(self, make: Callable[..., Made], *inputs: Tensor | None, near: float = 0.0, rtol: float = 0.0) -> None:
        """What the definition makes of copies on a CPU is what `make` makes of the inputs where kernels may serve.
        `near` is a share of the largest number."""
        copies = [None if one is None else _copied(one) for one in inputs]
        with using("eager"):
            expected = make(*copies)
        with using("triton"), poisoned(self._around):
            made = make(*inputs)
        for own, truth in zip(made, expected, strict=True):
            assert (own is None) == (truth is None)
            if own is None or truth is None:
                continue
            own, truth = own.detach().cpu(), truth.detach()
            assert own.dtype == truth.dtype
            if not near:
                assert own.shape == truth.shape
                assert torch.equal(own, truth)
                continue
            size = max(1.0, float(truth.abs().max())) if truth.numel() else 1.0
            torch.testing.assert_close(own.double(), truth.double(), rtol=rtol, atol=near * size)
        self._check()

    def _put(self, values: Tensor, written: bool, layouts: Sequence[str] = _LAYOUTS) -> Tensor:
        layout = self.draw(st.sampled_from(layouts))
        layout = "rows" if written and layout == "expanded" else layout
        strides, values = self._strides(layout, values)
        extent = 1 + sum((size - 1) * stride for size, stride in zip(values.shape, strides, strict=True))
        offset = _ROOM + self.draw(st.sampled_from([0, 0, 1, 2, 16]))
        return self._laid(values, strides, offset, extent if values.numel() else 0, keep=not written)

    def _strides(self, layout: str, values: Tensor) -> tuple[list[int], Tensor]:
        order = list(range(values.dim()))
        if layout == "channels last" and values.dim() > 2:
            order = [0, *order[2:], 1]
        elif layout == "any order":
            order = self.draw(st.permutations(order))
        strides, at, open_end = [0] * len(order), 2 if layout == "gaps" else 1, layout == "padded"
        for dim in reversed(order):
            size = values.shape[dim]
            if size == 1:  # whose stride means nothing
                strides[dim] = self.draw(st.sampled_from([at, 0, 1, 3]))
                continue
            strides[dim], at = at, at * max(size, 1)
            at, open_end = (at + 3, False) if open_end else (at, open_end)
        if layout == "expanded" and order and values.numel():
            dim = self.draw(st.sampled_from(order))
            strides[dim], values = 0, values.narrow(dim, 0, 1).expand(values.shape)
        return strides, values

    def _laid(self, values: Tensor, strides: Sequence[int], offset: int, extent: int, keep: bool) -> Tensor:
        """The values in the middle of a buffer of their own."""
        buffer = torch.full((offset + extent + _ROOM,), worst(values.dtype), dtype=values.dtype, device=DEVICE)
        inside = torch.zeros(len(buffer), dtype=torch.bool, device=DEVICE)
        if values.numel():
            place = sum(
                (
                    (torch.arange(size) * stride).view(-1, *[1] * (values.dim() - 1 - dim))
                    for dim, (size, stride) in enumerate(zip(values.shape, strides, strict=True))
                ),
                torch.tensor(offset),
            )
            places = place.expand(values.shape).flatten().to(DEVICE)
            buffer[places], inside[places] = values.flatten().to(DEVICE), True
        tensor = buffer.as_strided(values.shape, strides, offset)
        self._placed.append(_Placed(buffer, inside, tensor, tensor.clone() if keep else None))
        return tensor

    def _around(self, empty: Tensor) -> Tensor:
        """What a kernel's launch asks for, likewise."""
        if empty.device.type != DEVICE.type or not empty.numel():
            return empty
        extent = 1 + sum((size - 1) * stride for size, stride in zip(empty.shape, empty.stride(), strict=True))
        return self._laid(empty.cpu(), empty.stride(), _ROOM, extent, keep=False)

    def _check(self) -> None:
        for buffer, inside, tensor, before in self._placed:
            spoilt = buffer.float().isnan() if buffer.is_floating_point() else buffer == worst(buffer.dtype)
            untouched = spoilt | inside
            assert untouched.all(), f"written to the surroundings of {tuple(tensor.shape)}, {tensor.stride()}"
            assert before is None or torch.equal(tensor, before), f"written to an input of {tuple(tensor.shape)}"


def _copied(tensor: Tensor) -> Tensor:
    copy = tensor.detach().resolve_neg().to("cpu", copy=True).contiguous()
    return copy.requires_grad_(tensor.requires_grad)
