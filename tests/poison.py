"""Memory that nobody has written to, made visible."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor


@contextmanager
def poisoned(place: Callable[[Tensor], Tensor] | None = None) -> Iterator[None]:
    """Inside: empty tensors are full of NaN, or of the largest integer, so that what a kernel leaves out is seen. torch
    does so too where its algorithms are to be deterministic, but then refuses products on a GPU.

    `place` may move such a tensor to memory of its own choice.
    """

    def full(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def poisoned(*size: Any, **options: Any) -> Tensor:
            out = make(*size, **options)
            with torch.no_grad():
                out.fill_(worst(out.dtype))
                return out if place is None else place(out)

        return poisoned

    with torch.device("meta"):  # torch lists what makes tensors once, at its first use: not with the functions below
        torch.empty(0)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch, "empty_strided"), (Tensor, "new_empty")):
            patch.setattr(owner, name, full(getattr(owner, name)))
        yield


def worst(dtype: torch.dtype) -> float:
    """What spoils every result that it enters."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.nan
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max
