"""WHAT noise: ΔW given the mean W̄, always as a spread times standard noise that can be made again."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from .._batched_gradients import one_at_a_time
from ..backend import chosen
from ..draws.bits import is_transformed
from ..draws.noise import Origin, Stream
from ..draws.opaque import is_only_compiling
from ..errors import InvalidArgument
from .prior import Prior


class Distribution(ABC):
    """ΔŴ = spread(W̄) ∘ noise. Subclasses say both, and what schemes may rely on."""

    symmetric: bool = False  # ΔW and −ΔW have the same distribution: flipout may flip it
    gaussian: bool = False  # noise is N(0, 1): local reparameterisation may sum it

    @abstractmethod
    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        """The scale of the noise, of a shape that broadcasts to the mean's; differentiable in it and the learned."""

    @abstractmethod
    def noise(self, stream: Stream) -> Tensor:
        """Standard noise, mean 0, nothing learned: of shape (starting points, *stream.shape)."""

    def source(self, **learned: Tensor) -> Tensor | None:
        """The Parameter, of the mean's shape, whose softplus the spread is, if so: kernels make it where it is used."""
        return None

    def named(self, name: str) -> Self:
        """This distribution for one Parameter: fields given as {glob: value} are looked up by its name."""
        if not dataclasses.is_dataclass(self):
            return self
        chosen = {
            field.name: _lookup(value, name, f"{type(self).__name__}({field.name}={{…}})")
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Mapping)
        }
        return dataclasses.replace(self, **chosen) if chosen else self


class LearnedDistribution(Distribution):
    """A distribution with Parameters of its own beside each perturbed one."""

    prior: Prior | Mapping[str, Prior] | None = None  # what `flipout.bayes.kl` compares it with

    @abstractmethod
    def initial(self, mean: Tensor) -> dict[str, Tensor]:
        """Suffix → initial value, of any shape: `weight` gets `weight_<suffix>`, handed to `spread` as `<suffix>=`."""


def _lookup(table: Mapping[str, Any], name: str, what: str) -> Any:
    for pattern, value in table.items():
        if fnmatchcase(name, pattern):
            return value
    raise InvalidArgument(
        f"{what}: no pattern of {list(table)} matches Parameter '{name}'. Add one, or '*' as the last."
    )


def check_std(std: Any, what: str) -> None:
    for value in std.values() if isinstance(std, Mapping) else [std]:
        number = torch.as_tensor(value if isinstance(value, (Real, Tensor)) else math.nan, dtype=torch.float64)
        if not bool((torch.isfinite(number) & (number >= 0)).all()):
            raise InvalidArgument(f"{what}: std={value!r} given; a standard deviation is a finite number ≥ 0.")


def scale(std: float | Tensor, mean: Tensor) -> Tensor:
    return std.to(mean) if isinstance(std, Tensor) else mean.new_full((), std)


Kind = Literal["normal", "sign"]


def standard(kind: Kind | Callable[[Any], Kind | None]) -> Callable[[Callable], Callable]:
    """Marks a `noise` that is just what a stream has under this name: kernels may then make it. What overrides it is
    not marked."""

    def marked(noise: Callable) -> Callable:
        noise.kind = kind if callable(kind) else lambda _: kind  # pyright: ignore[reportFunctionMemberAccess]
        return noise

    return marked


class ScaledNoise(NamedTuple):
    """factor ∘ noise, cast: of a spread forward, and of a gradient backward."""

    distribution: Distribution
    shape: tuple[int, ...]
    rounded: torch.dtype  # of the noise alone
    origin: Origin | None = None  # where the stream starts, made of a seed; without it the start itself is given
    softplus: bool = False  # the spread is that of a source, which is given in its place

    @property
    def kind(self) -> Kind | None:
        """What a stream calls this noise, None if it is the distribution's own."""
        return getattr(type(self.distribution).noise, "kind", lambda _: None)(self.distribution)

    def kernel(self, start: Tensor, factor: Tensor, **of: Any) -> Callable[[torch.dtype], Tensor] | None:
        kind = self.kind
        if kind is None or (factor.shape not in (self.shape, ()) and factor.shape != (*start.shape, *self.shape)):
            return None
        if kind != "normal" and (of.get("softplus") or of.get("slope") is not None):
            return None
        made = chosen("scaled_noise", start, self.rounded, required=False)
        return made and (lambda dtype: made(start, factor, self.shape, kind, self.rounded, dtype, self.origin, **of))

    def delta(self, given: Tensor, start: Tensor, dtype: torch.dtype) -> Tensor | None:
        """ΔŴ of a spread or its source, if a kernel makes it."""
        kernel = self.kernel(start, given, softplus=self.softplus)
        return None if kernel is None else kernel(dtype)

    def gradient(
        self, grad: Tensor, start: Tensor, source: Tensor | None, size: torch.Size, noise: Tensor | None = None
    ) -> Tensor:
        """Of the spread, or of its source, from that of ΔŴ; the noise is made again where it was not kept."""
        again = noise is None and not torch.is_grad_enabled()
        kernel = self.kernel(start, grad, slope=source) if again else None
        if kernel is not None:
            made = kernel(self.rounded)
        else:
            made = grad.to(self.rounded) * (self.noise(start) if noise is None else noise)
            made = made if source is None else made * source.sigmoid()
        return made if made.shape == size else made.sum_to_size(size)

    def noise(self, start: Tensor) -> Tensor:
        at = start if self.origin is None else self.origin.start(start)
        return self.distribution.noise(Stream(at, self.shape, self.rounded))


class _Replayed(torch.autograd.Function):
    """spread ∘ noise, which keeps the streams' starting points for backward and makes the noise again.

    A CPU keeps the noise itself: there, making it costs as much as a matrix product.
    """

    @staticmethod
    def forward(ctx: Any, spread: Tensor, start: Tensor, scaled: ScaledNoise, dtype: torch.dtype) -> Tensor:
        ctx.scaled, ctx.size = scaled, spread.shape
        made = scaled.delta(spread, start, dtype)
        if made is not None:
            ctx.save_for_backward(start, None)
            return made
        noise = scaled.noise(start)
        ctx.save_for_backward(start, noise if start.device.type == "cpu" else None)
        return (spread * noise).to(dtype)

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        start, noise = ctx.saved_tensors
        return ctx.scaled.gradient(grads[0], start, None, ctx.size, noise), None, None, None


class _OfSource(torch.autograd.Function):
    """softplus(source) ∘ noise. A kernel makes it in one pass each way, and the spread itself is never written."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, start: Tensor, scaled: ScaledNoise, dtype: torch.dtype) -> Tensor:
        ctx.scaled = scaled
        ctx.save_for_backward(source, start)
        made = scaled.delta(source, start, dtype)
        return (F.softplus(source) * scaled.noise(start)).to(dtype) if made is None else made

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        source, start = ctx.saved_tensors
        return ctx.scaled.gradient(grads[0], start, source, source.shape), None, None, None


def is_spread_fused(source: Tensor | None, shape: torch.Size) -> bool:
    """Return True if the spread will be computed together with the noise, so that it need not be computed before.

    A kernel does that, and so does a compiled graph, where ΔŴ is one node.
    """
    if source is None or source.shape != shape or source.dtype == torch.float64:
        return False
    if is_transformed():
        return is_only_compiling()
    return chosen("scaled_noise", source, source.dtype, required=False) is not None


def sample(scaled: ScaledNoise, given: Tensor, start: Tensor, dtype: torch.dtype) -> Tensor:
    """ΔŴ for each starting point, in `dtype`, of the spread or its source; with an origin, for each seed."""
    kind = scaled.kind
    if kind is not None and is_only_compiling():
        from .opaque import delta

        return delta(scaled, kind, given, start, dtype)
    if scaled.softplus:
        return _OfSource.apply(given, start, scaled, dtype)  # pyright: ignore[reportReturnType]
    if given.requires_grad and not is_transformed():
        return _Replayed.apply(given, start, scaled, dtype)  # pyright: ignore[reportReturnType]
    made = None if is_transformed() else scaled.delta(given, start, dtype)
    return (given * scaled.noise(start)).to(dtype) if made is None else made
