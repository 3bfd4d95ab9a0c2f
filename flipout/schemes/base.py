"""WHO shares the noise: how the examples of a batch see a Parameter's perturbation."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from torch import Tensor

from .._perturbation import Perturbation
from ..distributions.base import Distribution
from ..draws.at_once import AtOnce
from ..ops.base import Op, by_example, is_tracked

SchemeName = Literal["shared", "flipout", "independent", "local_reparam", "low_rank", "rank_one"]
"""Name of a scheme, wherever a `scheme` is expected."""

BoundProduct = Callable[[Tensor], Tensor]  # an op with its weights fixed, as a function of x


class Scheme(ABC):
    """Base class of schemes: how the N examples of a batch share the noise of a Parameter.

    A scheme is written once and works with every op and every distribution.

    Attributes:
        name: The name of the scheme.
        once: Whether a weight may be used only once in a forward pass, since each use is sampled separately.
        own_weights: Whether the weights of each example are formed, which takes memory.
        group: Number of examples that share a base; None for all.
        transformable: Whether torch.func and torch.compile can trace the scheme.

    Example:
        >>> flipout.perturb(model, flipout.Gaussian(0.1), scheme=flipout.Flipout(group=8))
    """

    name: str
    once: bool = False
    own_weights: bool = False
    is_shared: bool = False  # all examples see one weight, so they need not be told apart
    is_grouped: bool = False  # a call reads the noise of all groups, so it may be drawn at once
    reuse_signs: bool = False  # the signs do not belong to the draw
    group: int | None = None
    transformable: bool = True

    @abstractmethod
    def check(self, distribution: Distribution, what: str) -> None:
        """Refuse a distribution for which this scheme would be mathematically wrong.

        Args:
            distribution: The noise.
            what: The layer or Parameter, for the error message.
        """

    @abstractmethod
    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        """Return the output (N, …) of the op for x (N, …), each example under its own weight.

        Args:
            op: The op.
            x: The input. Dimension 0 is the rows.
            bias: A bias without noise, or None.
            p: The weight and its noise.
        """

    def small(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation, drawn: AtOnce) -> Tensor | None:
        """Return `product` for a small x (N, …), or None if that would not be faster.

        Args:
            op: The op.
            x: The input.
            bias: A bias without noise, or None.
            p: The weight and its noise.
            drawn: The signs and noise that were drawn at once for the whole model.
        """
        return None

    def affine(self, op: Op, x: Tensor, p: Perturbation, bias: Perturbation) -> Tensor | None:
        """Return `product` plus `add_vector` for x (N, …) in one operation, or None if that would not be faster.

        It is called only if nothing is differentiated or traced.

        Args:
            op: The op.
            x: The input.
            p: The weight and its noise.
            bias: The bias and its noise.
        """
        return None

    @abstractmethod
    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> BoundProduct:
        """Return `product` as a function of x (N, …). Signs and noise are drawn once for all its calls.

        Args:
            op: The op.
            bias: A bias without noise, or None.
            p: The weight and its noise.
        """

    @abstractmethod
    def vector(self, p: Perturbation) -> Tensor:
        """Return the bias or norm Parameter of each example, of shape (examples or 1, *shape).

        Args:
            p: The Parameter and its noise.
        """

    @abstractmethod
    def add_vector(self, y: Tensor, p: Perturbation, dim: int) -> Tensor:
        """Return y (N, …) plus the bias of each example over dimension `dim`. Without autograd, y is overwritten.

        Args:
            y: The output of the op.
            p: The bias and its noise.
            dim: The dimension of y that the bias runs over.
        """

    @abstractmethod
    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        """Return the perturbation of single rows of a 2-D Parameter, of shape (*row.shape, width).

        Args:
            p: The Parameter and its noise.
            row: Indices of the rows.
            example: The example that looks each row up, counted from the first one of `p`.
        """

    @abstractmethod
    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        """Return the Parameter that each example sees, of shape (examples, *shape).

        Args:
            p: The Parameter and its noise.
            groups: Groups of a convolution, 1 for a matrix, None for a vector.
        """

    @abstractmethod
    def weighted(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        """Return Σ_n F_n ΔW_n over the examples n, of the Parameter's shape and at least in single precision.

        Memory does not grow with examples × weights.

        Args:
            p: The Parameter and its noise.
            groups: Groups of a convolution, 1 for a matrix, None for a vector.
            coefficients: The coefficients F, of shape (examples,).
        """


def add_by_example(y: Tensor, vectors: Tensor, dim: int) -> Tensor:
    """Return y plus the vector of each example over dimension `dim`. `vectors` has a row per example, or one row."""
    rows, terms = by_example(y, vectors, dim)
    if is_tracked() or not rows.is_contiguous():
        return (rows + terms).view(y.shape)
    rows += terms
    return y
