"""What a rank holds of a Parameter that is sharded over ranks: a DTensor, of `fully_shard` or `parallelize_module`."""

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
    "Load its full state dict into a model that is not: get_model_state_dict(model, "
    "options=StateDictOptions(full_state_dict=True)), of torch.distributed.checkpoint.state_dict."
)


def sharded(tensor: Any) -> bool:
    """Whether it is a DTensor; its module takes half a second to import, and whoever has one has imported it."""
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(tensor, tensors.DTensor)


def refuse_shards(model: nn.Module, what: str, fix: str) -> None:
    """Refuse a model whose Parameters are sharded, or were before an all-gather."""
    wrapped = sys.modules.get("torch.distributed.fsdp")
    for label, module in model.named_modules():
        held = [name for name, parameter in module.named_parameters(recurse=False) if sharded(parameter)]
        if held or (wrapped is not None and isinstance(module, wrapped.FSDPModule)):
            where = ".".join(filter(None, [label, *held[:1]])) or type(module).__name__
            raise Unsupported(f"{what}: {where} is sharded over ranks. {fix}")


def held_here(tensor: Tensor) -> Tensor:
    """The numbers that this rank holds."""
    held: Any = tensor
    return held.to_local() if sharded(tensor) else tensor


@dataclass(frozen=True)
class Shard:
    """Where the numbers of this rank are in the whole Parameter."""

    mesh: Any
    placements: tuple[Any, ...]
    whole: tuple[int, ...]
    shape: tuple[int, ...]
    offset: tuple[int, ...]

    @classmethod
    def of(cls, parameter: Any) -> "Shard | None":
        if not sharded(parameter):
            return None
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        mesh, placements, whole = parameter.device_mesh, tuple(parameter.placements), tuple(parameter.shape)
        return cls(mesh, placements, whole, *compute_local_shape_and_global_offset(whole, mesh, placements))

    @property
    def split(self) -> tuple[int, ...]:
        """The mesh's dimensions over which the numbers are split; over the others they are the same."""
        return tuple(dim for dim, placement in enumerate(self.placements) if not placement.is_replicate())

    def part(self, value: Any) -> Tensor:
        """Of a tensor that broadcasts to the Parameter, what goes with the numbers here."""
        if sharded(value):
            if (value.shape, value.device_mesh, value.placements) == (self.whole, self.mesh, self.placements):
                return value.to_local()
            value = value.full_tensor(grad_placements=self._contributions())
        for dim in range(1, value.dim() + 1):
            if value.shape[-dim] != 1:
                value = value.narrow(-dim, self.offset[-dim] if self.shape[-dim] else 0, self.shape[-dim])
        return value

    def elements(self, device: torch.device) -> Tensor:
        """(*shape): the flat index of each number in the whole Parameter."""
        index = torch.zeros((), dtype=torch.int64, device=device)
        for dim, (first, count) in enumerate(zip(self.offset, self.shape, strict=True)):
            stride = math.prod(self.whole[dim + 1 :])
            index = index.unsqueeze(-1) + torch.arange(first, first + count, device=device) * stride
        return index

    def total(self, sums: Tensor) -> Tensor:
        """Sums over the numbers here, made into those over the whole Parameter.

        Backward hands every shard the mean of what the ranks' losses ask of the total: what averaging the gradients of
        whole Parameters would give, where the ranks have unequal shares of a batch too.
        """
        groups = [self.mesh.get_group(dim) for dim in range(self.mesh.ndim)]
        return _Total.apply(sums, [groups[dim] for dim in self.split], groups)

    def agreed(self, number: Tensor) -> Tensor:
        """The number that the mesh's first rank has."""
        number = number.clone()
        for dim in range(self.mesh.ndim):
            dist.broadcast(number, group=self.mesh.get_group(dim), group_src=0)
        return number

    def _contributions(self) -> list[Any]:
        """How the gradient of a whole tensor beside it is spread: each shard of the Parameter adds its own."""
        from torch.distributed.tensor import Partial, Replicate

        return [Partial() if dim in self.split else Replicate() for dim in range(self.mesh.ndim)]


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sums: Tensor, split: list[Any], everyone: list[Any]) -> Tensor:
        ctx.everyone, total = everyone, sums.clone()
        for group in split:
            dist.all_reduce(total, group=group)
        return total

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        mean = gradients[0].clone()
        for group in ctx.everyone:
            dist.all_reduce(mean, group=group)
            mean /= dist.get_world_size(group)
        return mean, None, None
