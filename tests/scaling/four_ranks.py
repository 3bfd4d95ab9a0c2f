"""The work of four processes that torchrun starts: python -m tests.scaling.four_ranks FOLDER CHECKPOINT"""

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
from tests.scaling.two_ranks import full_state, shard


def loaded(rank: int, checkpoint: str) -> dict[str, Any]:
    """Load the checkpoint of two ranks and take a step."""
    model = shard(reader(share_base=True))
    optimizer = optimizer_of(model)
    parameters, state = get_state_dict(model, optimizer)
    dcp.load({"model": parameters, "optimizer": state}, checkpoint_id=checkpoint)
    set_state_dict(model, optimizer, model_state_dict=parameters, optim_state_dict=state)
    loaded_state = full_state(model)
    torch.manual_seed(9)
    return {"state": loaded_state, "next": train(elbo_of(model), optimizer, slice(2 * rank, 2 * rank + 2), 1)}


def replicated(rank: int, mesh: Any) -> dict[Any, Any]:
    """Train two replicas of two shards. All four ranks have their own examples."""
    results = {}
    for label, prior in PRIORS.items():
        for share in (False, True):
            model = shard(reader(prior, share_base=share), mesh=mesh)
            torch.manual_seed(6 + rank)
            losses = train(elbo_of(model), optimizer_of(model), slice(2 * rank, 2 * rank + 2))
            shards = {name: parameter.to_local().detach() for name, parameter in model.named_parameters()}
            results[label, share] = losses, shards
    return results


def along_one_dimension(mesh: Any) -> torch.Tensor:
    """Be data-parallel along one dimension of the mesh only. Ranks along the other see the same examples and draw."""
    group = mesh["replicas"].get_group()
    model = shard(reader(process_group=group), mesh=mesh["shards"])
    replica = dist.get_rank(group)
    torch.manual_seed(6)
    with flipout.hold(model):
        return model(TOKENS[4 * replica : 4 * replica + 4]).detach()


def main(folder: str, checkpoint: str) -> None:
    rank = joined()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    results = {
        "loaded": loaded(rank, checkpoint),
        "replicated": replicated(rank, mesh),
        "one dimension": along_one_dimension(mesh),
    }
    torch.save(results, f"{folder}/{rank}.pt")
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
