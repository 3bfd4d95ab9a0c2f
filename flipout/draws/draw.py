"""A draw: the numbers that identify one sample of the weights."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._arguments import whole_number
from ..errors import InvalidArgument
from .bits import is_transformed, undifferentiated, wrap


@dataclass(frozen=True, eq=False)
class Draw:
    """The seeds of a sample, and how the rows of a batch are numbered. It is immutable; a `Pass` holds the state."""

    seed: Tensor
    sign_seed: Tensor | None = None  # a separate seed for the signs; None to use `seed`
    first: int = 0  # the index of the first example
    rows: int = 1  # rows per example
    group: int | None = None  # examples per base; overrides the group of the scheme
    antithetic: bool = False  # negate every perturbation
    rank: int = 0  # data-parallel rank; its examples are numbered after those of lower ranks
    share_base: bool = False  # True: all ranks use the same base. False: each rank has its own
    fixed: bool = False  # the seeds are never written to, so they can be kept without a copy

    def __post_init__(self) -> None:
        is_usual = type(self.first) is int and type(self.rows) is int and self.group is None
        if is_usual and self.first >= 0 and self.rows > 0:
            return  # the fast way out: every forward pass makes such a draw
        for name, least in (("first", 0), ("rows", 1), ("group", 1)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                object.__setattr__(self, name, whole_number(name, value, least))

    def seed_of_signs(self, reuse: bool) -> Tensor:
        """Return the current seed of the signs. If the seed tensor may be written to before backward, return a copy.

        Args:
            reuse: Whether the scheme keeps its signs over mini-batches. They then do not depend on the draw.
        """
        if reuse and self.sign_seed is None:
            return torch.zeros_like(self.seed)
        seed = self.seed if self.sign_seed is None else self.sign_seed
        return seed if self.can_keep_seeds else seed.clone()

    @property
    def can_keep_seeds(self) -> bool:
        """Whether autograd may keep the seeds: they are never written to and are no inference-mode tensors."""
        return self.fixed and (is_transformed() or torch.is_inference_mode_enabled() or not self.seed.is_inference())

    @property
    def fold(self) -> int:
        """The number that makes the base of this rank differ from those of other ranks."""
        return 0 if self.share_base else self.rank

    def to(self, device: torch.device) -> "Draw":
        """Return the draw with its seeds on a device."""
        if self.seed.device == device and (self.sign_seed is None or self.sign_seed.device == device):
            return self
        sign_seed = None if self.sign_seed is None else self.sign_seed.to(device)
        return replace(self, seed=self.seed.to(device), sign_seed=sign_seed)


def from_seed(
    seed: int | Tensor, sign_seed: int | Tensor | None = None, device: torch.device | None = None, **fields
) -> Draw:
    """Return a draw that can be replayed from its seed.

    Raises:
        InvalidArgument: A seed is neither an int nor a 0-dim int64 tensor.
    """
    sign_tensor = None if sign_seed is None else _seed_tensor(sign_seed, device)
    fixed = not isinstance(seed, Tensor) and not isinstance(sign_seed, Tensor)
    return Draw(_seed_tensor(seed, device), sign_tensor, fixed=fixed, **fields)


def _seed_tensor(seed: int | Tensor, device: torch.device | None) -> Tensor:
    if isinstance(seed, Tensor):
        if seed.dim() or seed.dtype != torch.int64:
            raise InvalidArgument(
                f"seed: expected an int or a 0-dim int64 tensor, got {seed.dtype} {tuple(seed.shape)}."
            )
        return undifferentiated(seed)
    number = whole_number("seed", seed, more=", or a 0-dim int64 tensor.")
    with torch.inference_mode(False):  # autograd keeps the seed
        return undifferentiated(torch.full((), wrap(number), dtype=torch.int64, device=_real_device(device)))


def fresh_seed(device: torch.device) -> Tensor:
    """Read one number from torch's global generator of that device."""
    seed = torch.randint(2**63 - 1, (), dtype=torch.int64, device=_real_device(device))
    return undifferentiated(seed)


def _real_device(device: torch.device | None) -> torch.device | None:
    """Return the device, but the CPU instead of the meta device.

    Weights that are offloaded to the meta device are loaded again within the same draw.
    """
    return torch.device("cpu") if device is not None and device.type == "meta" else device


def runs(first: int, count: int, most: int, group: int) -> Iterator[tuple[int, int]]:
    """Split examples into consecutive runs of at most `most`, as (first, count).

    A run ends where a group ends, if `most` examples reach that far. With `group=0` all examples are one group.
    """
    stop = first + count
    while first < stop:
        end = first + max(most, 1)
        within = end // group * group if group else first
        end = min(within if within > first else end, stop)
        yield first, end - first
        first = end
