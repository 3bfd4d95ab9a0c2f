"""WHO shares the noise: how the examples of a batch see a Parameter's perturbation."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from ..distributions.base import Distribution
from ..draws.at_once import AtOnce
from ..ops.base import Op, by_example, watched
from ..perturbation import Perturbation

Product = Callable[[Tensor], Tensor]


class Scheme(ABC):
    """How N examples see one Parameter's noise: written once, for every op and distribution."""

    name: str
    once: bool = False  # a weight that a forward pass uses twice would be two weights
    own_weights: bool = False  # every example's weights are formed, and take memory
    group: int | None = None  # examples that share a base, None for all
    serves_bases: bool = False  # it can use the noise of several bases that was made at once
    transformable: bool = True  # torch.func and torch.compile see through it

    @abstractmethod
    def check(self, distribution: Distribution, what: str) -> None:
        """Refuse a distribution with which this scheme is mathematically wrong."""

    @abstractmethod
    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        """op's output (N, …) for x (N, …), each example under its own weight; the bias is added as it is."""

    def small(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation, made: AtOnce) -> Tensor | None:
        """`product` of x (N, …) with what was made at once for the whole draw, by torch's own operations; None if that
        would not be faster."""
        return None

    @abstractmethod
    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> Product:
        """`product` for many inputs (N, …), one after the other, under one draw: what it decides is made once."""

    @abstractmethod
    def vector(self, p: Perturbation) -> Tensor:
        """(examples or 1, *shape): each example's own bias or norm Parameter."""

    @abstractmethod
    def add_vector(self, y: Tensor, p: Perturbation, dim: int) -> Tensor:
        """y (N, …) plus each example's own bias over dimension `dim`, in y's memory where nothing is differentiated."""

    @abstractmethod
    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        """(*row.shape, width): the perturbation of rows of a 2-D Parameter, each looked up by an example here."""

    @abstractmethod
    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        """(examples, *shape): what each example sees. `groups` of a kernel, 1 for a matrix, None for a vector."""

    @abstractmethod
    def weighted(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        """Σ_n F_n ΔW_n over the examples n with their `coefficients` F, of the Parameter's shape and at least in single
        precision. Memory does not grow with examples × weights."""


def added(y: Tensor, vector: Tensor, dim: int) -> Tensor:
    """y + vector, of which each example or all of them have a row, over dimension `dim`."""
    rows, own = by_example(y, vector, dim)
    if watched() or not rows.is_contiguous():
        return (rows + own).view(y.shape)
    rows += own
    return y


def at_once(tensor: Tensor) -> int:
    """Numbers that a sum over examples may make at a time: on a CPU, those that stay near its cache."""
    return 2**22 if tensor.device.type == "cpu" else 2**26


def wide(coefficients: Tensor, p: Perturbation) -> Tensor:
    """The coefficients as their sum with perturbations is made: half precision would round it at every step."""
    return coefficients.to(p.parameter.device, torch.promote_types(p.dtype, torch.float32))


_ROOM = 2.0**11  # of the sum of all |F| in half precision: whatever adds up, it stays below 2¹⁶


def outer_sum(left: Tensor, right: Tensor, coefficients: Tensor) -> Tensor:
    """leftᵀ diag(F) right, in the precision of F. On a GPU half-precision factors go to its matrix units, where F is
    rounded too, relative to the sum of all |F|."""
    if left.dtype.itemsize > 2 or not left.is_cuda:
        wider = coefficients.dtype
        return (left.to(wider) * coefficients.unsqueeze(-1)).mT @ right.to(wider)
    scale = coefficients.abs().sum().clamp_min(torch.finfo(coefficients.dtype).tiny) / _ROOM
    weighed = left.half() * (coefficients / scale).half().unsqueeze(-1)
    return (weighed.mT @ right.half()).to(coefficients.dtype) * scale
