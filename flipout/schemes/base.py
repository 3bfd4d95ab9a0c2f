"""WHO shares the noise: how the examples of a batch see a Parameter's perturbation."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor

from ..distributions.base import Distribution
from ..ops.base import Op
from ..perturbation import Perturbation

Product = Callable[[Tensor], Tensor]


class Scheme(ABC):
    name: str
    once: bool = False  # a weight that a forward pass uses twice would be two weights
    own_weights: bool = False  # every example's weights are formed, and take memory

    @abstractmethod
    def check(self, distribution: Distribution, what: str) -> None:
        """Refuse a distribution with which this scheme is mathematically wrong."""

    @abstractmethod
    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        """op's output for x, each example under its own weight; the bias is added as it is."""

    @abstractmethod
    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> Product:
        """`product` for many inputs, one after the other, under one draw: what it decides is made once."""

    @abstractmethod
    def vector(self, p: Perturbation) -> Tensor:
        """(examples or 1, *shape): each example's own bias or norm Parameter."""

    @abstractmethod
    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        """(*row.shape, width): the perturbation of rows of a 2-D Parameter, each looked up by an example here."""

    @abstractmethod
    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        """(examples, *shape): what each example sees. `groups` of a kernel, 1 for a matrix, None for a vector."""
