"""A handle answers questions about the Parameter, and is refused after its pass."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flipout
from flipout import errors
from tests.networks import GAUSSIAN
from tests.nn.readings import IN, OUT, N, Reader, T


def test_questions_are_no_reads() -> None:
    seen = []

    def ask(m: Any, x: Tensor) -> Tensor:
        w = m.linear.weight
        seen.append((w.shape, w.dtype, w.device.type, w.dim(), w.size(0), w.numel(), len(w), w.requires_grad, w.ndim))
        return x.to(w.dtype) + torch.zeros_like(w).sum()

    model = flipout.perturb(Reader(ask), GAUSSIAN, where="linear.weight")
    with pytest.warns(errors.NeverRead, match=r"did not read: linear\.weight\."):
        model(torch.randn(N, T, IN))
    assert seen == [((OUT, IN), torch.float32, "cpu", 2, OUT, OUT * IN, OUT, True, 2)]


def test_a_read_that_outlives_its_pass_is_refused() -> None:
    kept: list[Tensor] = []
    model = flipout.perturb(
        Reader(lambda m, x: kept.append(m.linear.weight) or F.linear(x, m.linear.weight)),
        GAUSSIAN,
        where="linear.weight",
    )
    model(torch.randn(N, T, IN))
    with pytest.raises(errors.UnservedRead, match="kept beyond the forward pass"):
        F.linear(torch.randn(N, IN), kept[0])
