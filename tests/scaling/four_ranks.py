"""What four processes do, started by torchrun: python -m tests.scaling.four_ranks FOLDER CHECKPOINT"""

import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh

import flipout
from tests.ranks import leave
from tests.scaling.models import PRIORS, TOKENS, elbo_of, optimizer_of, reader, train
from tests.scaling.torchrun import joined
from tests.scaling.two_ranks import shard, whole


def loaded(rank: int, checkpoint: str) -> dict[str, Any]:
    """The checkpoint of two ranks, and a step from there."""
    model = shard(reader(share_base=True))
    optimizer = optimizer_of(model)
    parameters, state = get_state_dict(model, optimizer)
    dcp.load({"model": parameters, "optimizer": state}, checkpoint_id=checkpoint)
    set_state_dict(model, optimizer, model_state_dict=parameters, optim_state_dict=state)
    numbers = whole(model)
    torch.manual_seed(9)
    return {"numbers": numbers, "next": train(elbo_of(model), optimizer, slice(2 * rank, 2 * rank + 2), 1)}


def replicated(rank: int, mesh: Any) -> dict[Any, Any]:
    """Two replicas of two shards: all four ranks have their own examples."""
    made = {}
    for prior, given in PRIORS.items():
        for share in (False, True):
            model = shard(reader(given, share_base=share), mesh=mesh)
            torch.manual_seed(6 + rank)
            losses = train(elbo_of(model), optimizer_of(model), slice(2 * rank, 2 * rank + 2))
            shards = {name: parameter.to_local().detach() for name, parameter in model.named_parameters()}
            made[prior, share] = losses, shards
    return made


def beside(mesh: Any) -> torch.Tensor:
    """Data-parallel along one dimension only: ranks beside each other see the same examples and draw."""
    group = mesh["replicas"].get_group()
    model = shard(reader(process_group=group), mesh=mesh["shards"])
    own = dist.get_rank(group)
    torch.manual_seed(6)
    with flipout.hold(model):
        return model(TOKENS[4 * own : 4 * own + 4]).detach()


def main(folder: str, checkpoint: str) -> None:
    rank = joined()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    made = {"loaded": loaded(rank, checkpoint), "replicated": replicated(rank, mesh), "beside": beside(mesh)}
    torch.save(made, f"{folder}/{rank}.pt")
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
