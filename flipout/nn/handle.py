"""The handle that code outside of a layer gets when it reads a perturbed Parameter within a noisy pass.

Noise belongs to the Parameter, not to the call of its layer. `F.linear(x, self.proj.weight)` does not call `proj`, so
the attribute gives a handle in place of the Parameter. The handle knows the Parameter's shape, dtype and device. A
function of weights alone (a transpose, a slice, `exp`) makes another handle. An operation that meets the examples, such
as a product with an input, gives each example the result under its own weight, or is refused at that line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UnservedRead
from .reader import caller, is_inside_function

Values = Sequence[Tensor]


@dataclass(frozen=True)
class Source:
    """A perturbed Parameter: its layer, and its name there."""

    layer: Any
    name: str

    @property
    def label(self) -> str:
        """The Parameter's name in the model."""
        return f"{self.layer.flipout.label}.{self.name}".lstrip(".")

    @property
    def is_shared(self) -> bool:
        """Return True if all examples see one weight."""
        return self.layer.flipout.scheme.is_shared


class NoisyParameter(Tensor):
    """A function of perturbed Parameters, whose value differs from example to example.

    Attributes begin with an underscore, since a tensor has nearly every other name already.
    """

    _sources: tuple[Source, ...]  # the Parameters
    _compute: Callable[[Values], Tensor]  # computes this value from the values of the Parameters
    _at_mean: Tensor  # the value at the means, without a gradient: it has the shape, dtype and device
    _is_transposed: bool | None  # False for a matrix as it is stored, True for its transpose, None for anything else
    _is_routed: bool  # an expert: one of the matrices that a Parameter of three dimensions stacks

    @staticmethod
    def __new__(
        cls,
        sources: tuple[Source, ...],
        compute: Callable[[Values], Tensor],
        mean: Tensor,
        needs_grad: bool = False,
        is_transposed: bool | None = None,
        is_routed: bool = False,
    ) -> "NoisyParameter":
        handle = Tensor._make_wrapper_subclass(  # pyright: ignore[reportAttributeAccessIssue]
            cls,
            mean.shape,
            strides=mean.stride(),
            dtype=mean.dtype,
            device=mean.device,
            requires_grad=needs_grad and (mean.is_floating_point() or mean.is_complex()),
        )
        handle._sources, handle._compute, handle._at_mean = sources, compute, mean
        handle._is_transposed, handle._is_routed = is_transposed, is_routed
        return handle

    # Asked most often, by code that casts its input: 0.1 µs here, 2.6 through `__torch_function__`.
    dtype = property(lambda self: self._at_mean.dtype)  # pyright: ignore[reportAssignmentType]
    device = property(lambda self: self._at_mean.device)  # pyright: ignore[reportAssignmentType]
    shape = property(lambda self: self._at_mean.shape)  # pyright: ignore[reportAssignmentType]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        from .served import serve

        return serve(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        raise refusal(handles_in([args, kwargs or {}]), str(func), "torch runs it where its operands cannot be seen")


def handle_of(layer: Any, name: str, parameter: Tensor) -> NoisyParameter:
    """Return the handle of a layer's Parameter."""
    with torch._C.DisableTorchFunction():  # nobody has read its numbers yet
        mean, needs_grad = parameter.detach(), parameter.requires_grad
    return NoisyParameter((Source(layer, name),), lambda values: values[0], mean, needs_grad, False)


def handles_in(value: Any) -> list[NoisyParameter]:
    """Return the handles among arguments, in lists and tuples too."""
    if isinstance(value, NoisyParameter):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [handle for inside in value for handle in handles_in(inside)]
    return []


def refusal(handles: Sequence[NoisyParameter], operation: str, why: str) -> UnservedRead:
    """Return the error for a read that has no result for each example."""
    sources = list(dict.fromkeys(source for handle in handles for source in handle._sources))
    labels = ", ".join(source.label for source in sources)
    scheme = sources[0].layer.flipout.scheme.name if sources else ""
    if is_inside_function():
        why = "it is read inside a torch.autograd.Function, whose backward knows nothing of the noise"
        shared = ""
    else:
        shared = (
            f" Or share one noisy weight between the examples, with which every operation works: "
            f"scheme={{'{sources[0].label}': 'shared', '*': '{scheme}'}}."
            if sources and not sources[0].is_shared
            else ""
        )
    return UnservedRead(
        f"{labels}: {operation} at {caller()} reads this perturbed Parameter outside of its layer. {why[:1].upper()}"
        f"{why[1:]}. Leave the Parameter out: perturb(model, …, where=lambda name: …)."
        f"{shared}"
    )


def is_constant(tensor: Tensor, handles: Sequence[NoisyParameter]) -> bool:
    """Return True if a plain tensor beside handles surely has no examples: a number, a Parameter or a buffer."""
    if tensor.dim() == 0 or isinstance(tensor, nn.Parameter):
        return True
    layers = {source.layer for handle in handles for source in handle._sources}
    return any(tensor is buffer for layer in layers for buffer in layer.buffers())
