"""What two processes do, started by torchrun: python -m tests.scaling.two_ranks FOLDER [PART…]"""

import sys
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import flipout
from flipout.bayes import Guard, kl, prune
from flipout.errors import Unsupported
from tests.networks import gradients
from tests.ranks import leave
from tests.scaling.models import (
    DYADIC_X,
    PRIORS,
    TARGETS,
    TOKENS,
    Reader,
    X,
    checkpointed,
    dyadic,
    elbo_of,
    optimizer_of,
    reader,
    train,
)
from tests.scaling.torchrun import joined


def shard(model: Any, **options: Any) -> Any:
    """The recurrent layer by itself, and the rest with the root."""
    fully_shard(model.lstm, **options)
    return fully_shard(model, **options)


def whole(model: nn.Module) -> dict[str, Any]:
    """All numbers, on every rank."""
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def whole_gradients(model: Any) -> dict[str, Any]:
    return {name: p.grad.full_tensor() for name, p in model.named_parameters()}


def trained(rank: int) -> dict[str, Any]:
    """(prior, kind, whether the base is shared) → losses and KLs."""
    made = {}
    half = slice(4 * rank, 4 * rank + 4)
    for prior, given in PRIORS.items():
        for share in (False, True):
            for kind in ("whole", "sharded", "kept"):
                model = reader(given, share_base=share)
                if kind == "whole":
                    parallel: Any = DistributedDataParallel(model)
                else:
                    parallel = shard(model, reshard_after_forward=kind == "sharded")
                torch.manual_seed(6 + rank if share else 6)
                made[prior, kind, share] = train(elbo_of(parallel), optimizer_of(model), half)
    return made


def gradients_of_parts(rank: int) -> dict[str, Any]:
    """Unequal shares of a batch; a batch in two parts; both, of sharded models."""
    made = {}
    for prior, given in PRIORS.items():
        model = shard(reader(given, share_base=True))
        here = slice(0, 3) if rank == 0 else slice(3, 8)
        with flipout.hold(model, seed=7, first=here.start):
            elbo_of(model)(TOKENS[here], TARGETS[here], batch=4).loss.backward()
        made[prior, "unequal"] = whole_gradients(model)
        model = shard(reader(given, share_base=True))
        for first in (4 * rank, 4 * rank + 2):
            model.set_requires_gradient_sync(first % 4 == 2)
            here = slice(first, first + 2)
            with flipout.hold(model, seed=7, first=first):
                elbo_of(model)(TOKENS[here], TARGETS[here], batch=4).loss.backward()
        made[prior, "accumulated"] = whole_gradients(model)
    model = checkpointed()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    torch.manual_seed(6)
    model(X[4 * rank : 4 * rank + 4]).square().mean().backward()
    made["checkpointed"] = whole_gradients(model)
    return made


def exact(rank: int) -> dict[str, Any]:
    torch.manual_seed(6 + rank)  # the generators differ: rank 0's number counts
    model = dyadic(share_base=True)
    parallel = DistributedDataParallel(model)
    parallel(DYADIC_X[4 * rank : 4 * rank + 4]).square().sum().backward()
    return gradients(model)


def halves(rank: int) -> dict[str, Any]:
    """Products in bfloat16, Parameters and KL in float32."""
    model = reader().float()
    before = kl(model).detach()
    shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16), reshard_after_forward=True)
    with flipout.hold(model, seed=7, first=4 * rank):
        terms = elbo_of(model)(TOKENS[4 * rank : 4 * rank + 4], TARGETS[4 * rank : 4 * rank + 4])
    terms.loss.backward()
    return {"kl": (before, terms.kl.detach()), "loss": terms.loss.detach(), "gradients": whole_gradients(model)}


def refusals() -> dict[str, str]:
    model = shard(reader())
    mesh = init_device_mesh("cpu", (2,))
    parallel = parallelize_module(dyadic(), mesh, {"0": ColwiseParallel()})
    plain: Any = fully_shard(nn.Sequential(nn.Linear(4, 4)))
    attempts = {
        "perturb": lambda: flipout.perturb(plain, flipout.Gaussian(0.1)),
        "freeze": lambda: flipout.freeze(model),
        "prune": lambda: prune(model, 0.5),
        "outside": lambda: model.lstm.__class__.forward(model.lstm, torch.zeros(2, 3, 6, dtype=torch.float64)),
        "tensor parallel": lambda: parallel(DYADIC_X),
    }
    said = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except Unsupported as error:
            said[name] = str(error)
    return said


def from_meta() -> tuple[dict[str, Any], str]:
    """A model converted and sharded on the meta device: its numbers after resets, and what is said without them."""
    made = []
    for _ in range(2):
        with torch.device("meta"):
            model: Any = flipout.perturb(Reader(), flipout.MeanField(std=0.3, prior=PRIORS["closed form"]))
        made.append(shard(model).to_empty(device="cpu"))
    for module in made[0].modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    made[0](TOKENS)
    try:
        made[1](TOKENS)
    except Unsupported as error:
        return whole(made[0]), str(error)
    return whole(made[0]), ""


def seen(rank: int) -> torch.Tensor:
    """The weights of this rank's examples, once they are gathered."""
    model = shard(reader())
    with flipout.hold(model, seed=7, first=4 * rank):
        model(TOKENS[4 * rank : 4 * rank + 4])
        model.lstm.unshard()
        return flipout.example_weights(model.lstm)["weight_hh_l0"].detach()


def guarded(rank: int) -> tuple[bool, bool]:
    """A gradient that is bad in the shard of one rank."""
    model = shard(reader())
    before = whole(model)
    for parameter in model.parameters():
        parameter.grad = parameter.detach().clone()
    if rank:
        model.lstm.weight_hh_l0.grad.to_local()[0, 0] = float("nan")
    skipped = Guard(optimizer_of(model), model).step()
    return skipped is not None, all(torch.equal(value, before[name]) for name, value in whole(model).items())


def saved(rank: int, folder: str) -> dict[str, Any]:
    """Two steps, a checkpoint, and what the third step would be."""
    model = shard(reader(share_base=True))
    optimizer, half = optimizer_of(model), slice(4 * rank, 4 * rank + 4)
    torch.manual_seed(6)
    train(elbo_of(model), optimizer, half, 2)
    parameters, state = get_state_dict(model, optimizer)
    dcp.save({"model": parameters, "optimizer": state}, checkpoint_id=f"{folder}/checkpoint")
    kept, description = whole(model), str(flipout.summary(model))
    torch.manual_seed(9)
    return {"numbers": kept, "next": train(elbo_of(model), optimizer, half, 1), "summary": description}


def main(folder: str, *wanted: str) -> None:
    rank = joined()
    parts = {
        "exact": lambda: exact(rank),
        "trained": lambda: trained(rank),
        "parts": lambda: gradients_of_parts(rank),
        "halves": lambda: halves(rank),
        "refusals": refusals,
        "meta": from_meta,
        "seen": lambda: seen(rank),
        "guard": lambda: guarded(rank),
        "saved": lambda: saved(rank, folder),
    }
    made = {name: make() for name, make in parts.items() if not wanted or name in wanted}
    torch.save(made, f"{folder}/{rank}.pt")
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
