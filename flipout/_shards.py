"""The shard of a Parameter that one rank holds: a DTensor, made by `fully_shard` or `parallelize_module`."""

import math
import sys
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ._batched_gradients import one_at_a_time
from .errors import Unsupported

GATHER = (
    "Load its full state dict into a model that is not sharded: get_model_state_dict(model, "
    "options=StateDictOptions(full_state_dict=True)) from torch.distributed.checkpoint.state_dict."
)


def sharded(tensor: Any) -> bool:
    """Return True for a DTensor."""
    # Importing its module takes half a second. A caller that has a DTensor has imported it.
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(tensor, tensors.DTensor)


def refuse_shards(model: nn.Module, what: str, fix: str) -> None:
    """Refuse a model whose Parameters are sharded, or were sharded before an all-gather."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    for label, module in model.named_modules():
        names = [name for name, parameter in module.named_parameters(recurse=False) if sharded(parameter)]
        if names or (fsdp is not None and isinstance(module, fsdp.FSDPModule)):
            where = ".".join(filter(None, [label, *names[:1]])) or type(module).__name__
            raise Unsupported(f"{what}: {where} is sharded over ranks. {fix}")


def held_here(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this rank holds."""
    distributed: Any = tensor
    return distributed.to_local() if sharded(tensor) else tensor


@dataclass(frozen=True)
class Shard:
    """The position of this rank's shard in the full Parameter."""

    mesh: Any
    placements: tuple[Any, ...]
    full_shape: tuple[int, ...]
    shape: tuple[int, ...]
    offset: tuple[int, ...]

    @classmethod
    def of(cls, parameter: Any) -> "Shard | None":
        """Return the shard of a Parameter, or None if it is not sharded."""
        if not sharded(parameter):
            return None
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        mesh, placements, full_shape = parameter.device_mesh, tuple(parameter.placements), tuple(parameter.shape)
        shape, offset = compute_local_shape_and_global_offset(full_shape, mesh, placements)
        return cls(mesh, placements, full_shape, shape, offset)

    @property
    def split(self) -> tuple[int, ...]:
        """The mesh dimensions that split the Parameter. Along the others it is replicated."""
        return tuple(dim for dim, placement in enumerate(self.placements) if not placement.is_replicate())

    def part(self, value: Any) -> Tensor:
        """Return the part of `value` that belongs to this shard. `value` broadcasts to the full Parameter."""
        if sharded(value):
            if (value.shape, value.device_mesh, value.placements) == (self.full_shape, self.mesh, self.placements):
                return value.to_local()
            value = value.full_tensor(grad_placements=self._contributions())
        for dim in range(1, value.dim() + 1):
            if value.shape[-dim] != 1:
                value = value.narrow(-dim, self.offset[-dim] if self.shape[-dim] else 0, self.shape[-dim])
        return value

    def elements(self, device: torch.device) -> Tensor:
        """Return the flat index of each element in the full Parameter, of shape (*shape)."""
        index = torch.zeros((), dtype=torch.int64, device=device)
        for dim, (first, count) in enumerate(zip(self.offset, self.shape, strict=True)):
            stride = math.prod(self.full_shape[dim + 1 :])
            index = index.unsqueeze(-1) + torch.arange(first, first + count, device=device) * stride
        return index

    def total(self, sums: Tensor) -> Tensor:
        """Add up sums over shards to sums over the full Parameter.

        In backward, every shard receives the mean over all ranks of the total's gradient. That equals averaging the
        gradients of a Parameter that is not sharded, even if ranks have unequal shares of a batch.
        """
        groups = [self.mesh.get_group(dim) for dim in range(self.mesh.ndim)]
        return _Total.apply(sums, [groups[dim] for dim in self.split], groups)

    def agreed(self, number: Tensor) -> Tensor:
        """Return the number of the mesh's first rank, on all ranks."""
        number = number.clone()
        for dim in range(self.mesh.ndim):
            dist.broadcast(number, group=self.mesh.get_group(dim), group_src=0)
        return number

    def _contributions(self) -> list[Any]:
        """Return the placements of a full tensor's gradient: the shards of the Parameter each contribute a summand."""
        from torch.distributed.tensor import Partial, Replicate

        return [Partial() if dim in self.split else Replicate() for dim in range(self.mesh.ndim)]


class _Total(torch.autograd.Function):
    """All-reduce sums over the groups that split the Parameter; average their gradient over all groups."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, split: list[Any], all_groups: list[Any]) -> Tensor:
        ctx.all_groups, total = all_groups, sums.clone()
        for group in split:
            dist.all_reduce(total, group=group)
        return total

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        mean = gradients[0].clone()
        for group in ctx.all_groups:
            dist.all_reduce(mean, group=group)
            mean /= dist.get_world_size(group)
        return mean, None, None
