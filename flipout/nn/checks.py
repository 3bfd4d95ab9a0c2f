"""Refusals of arguments that are not a model, a distribution, or a choice of Parameters."""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..distributions import Distribution
from ..distributions.prior import Prior
from ..errors import InvalidArgument, Unsupported

Where = str | Iterable[str] | Callable[[str], bool]


def patterns(where: str | Iterable[str]) -> list[str]:
    """Return the globs of `where` as a list."""
    listed = [where] if isinstance(where, str) or not isinstance(where, Iterable) else list(where)
    if not all(isinstance(pattern, str) for pattern in listed):
        raise InvalidArgument(
            f"where={where!r}: expected a glob, a list of globs, or a predicate over Parameter names."
        )
    return listed


def matcher(where: Where) -> Callable[[str], bool]:
    """Return a predicate over Parameter names for a glob, several globs, or a predicate."""
    if isinstance(where, (type, nn.Module)):
        raise InvalidArgument(
            f"where={where!r}: expected a glob such as '*.weight', a list of globs, or a predicate over names."
        )
    if callable(where):
        return where
    globs = patterns(where)
    return lambda name: any(fnmatchcase(name, glob) for glob in globs)


def check_module(model: Any) -> None:
    """Refuse anything but a module."""
    if not isinstance(model, nn.Module):
        found = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise InvalidArgument(
            f"{found} given; expected an nn.Module: the model itself, not its class or its parameters(). Of a list of "
            "layers, make one: nn.Sequential(*layers)."
        )


def check_distribution(distribution: Any) -> None:
    """Refuse anything but a distribution: a name, a number, or a class that was not called."""
    if not isinstance(distribution, Distribution):
        is_class = isinstance(distribution, type)
        example = f"flipout.{distribution.__name__}(…)" if is_class else "flipout.Gaussian(0.1)"
        raise InvalidArgument(f"distribution={distribution!r}: expected a Distribution, such as {example}.")


def check_fit(distribution: Distribution, parameter: Tensor, label: str) -> None:
    """Refuse a Parameter that cannot have noise, and a std or prior that does not broadcast to it."""
    if not parameter.is_floating_point():
        raise Unsupported(
            f"{label}: a Parameter of dtype {parameter.dtype}; only real floating-point Parameters can be perturbed. "
            "Leave it out with `where`."
        )
    if is_traceable_wrapper_subclass(parameter):
        raise Unsupported(
            f"{label}: its numbers are packed in a {type(parameter).__module__}.{type(parameter).__name__}, as "
            "quantised weights are, and cannot be perturbed. Perturb first and quantise the plain layers, or leave it "
            "out with `where`. Adapters over quantised weights can have noise: where='*lora_*'."
        )
    std, prior = getattr(distribution, "std", None), getattr(distribution, "prior", None)
    shapes = {"std": tuple(std.shape)} if isinstance(std, Tensor) else {}
    if isinstance(prior, Prior):
        shapes["prior"] = prior.shape
    expected = tuple(parameter.shape)
    for name, shape in shapes.items():
        sizes = zip(shape[::-1], expected[::-1], strict=False)
        if len(shape) > len(expected) or any(size not in (1, full) for size, full in sizes):
            raise InvalidArgument(
                f"{label}: {name} of shape {shape} given; expected one that broadcasts to the Parameter's {expected}."
            )
