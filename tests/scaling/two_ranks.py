"""The work of two processes that torchrun starts: python -m tests.scaling.two_ranks FOLDER"""

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
    """Shard the recurrent layer by itself, and the rest with the root."""
    fully_shard(model.lstm, **options)
    return fully_shard(model, **options)


def full_state(model: nn.Module) -> dict[str, Any]:
    """Return the full state dict, on every rank."""
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def full_gradients(model: Any) -> dict[str, Any]:
    return {name: p.grad.full_tensor() for name, p in model.named_parameters()}


def trained(rank: int) -> dict[str, Any]:
    """Return losses and KLs for each (prior, kind, whether the base is shared)."""
    results = {}
    half = slice(4 * rank, 4 * rank + 4)
    for label, prior in PRIORS.items():
        for share in (False, True):
            for kind in ("replicated", "sharded", "kept gathered"):
                model = reader(prior, share_base=share)
                if kind == "replicated":
                    parallel: Any = DistributedDataParallel(model)
                else:
                    parallel = shard(model, reshard_after_forward=kind == "sharded")
                torch.manual_seed(6 + rank if share else 6)
                results[label, kind, share] = train(elbo_of(parallel), optimizer_of(model), half)
    return results


def gradients_of_parts(rank: int) -> dict[str, Any]:
    """Return gradients of sharded models: of unequal shares of a batch, of a batch in two parts, and of checkpoints."""
    results = {}
    for label, prior in PRIORS.items():
        model = shard(reader(prior, share_base=True))
        here = slice(0, 3) if rank == 0 else slice(3, 8)
        with flipout.hold(model, seed=7, first=here.start):
            elbo_of(model)(TOKENS[here], TARGETS[here], batch=4).loss.backward()
        results[label, "unequal"] = full_gradients(model)
        model = shard(reader(prior, share_base=True))
        for first in (4 * rank, 4 * rank + 2):
            model.set_requires_gradient_sync(first % 4 == 2)
            here = slice(first, first + 2)
            with flipout.hold(model, seed=7, first=first):
                elbo_of(model)(TOKENS[here], TARGETS[here], batch=4).loss.backward()
        results[label, "accumulated"] = full_gradients(model)
    model = checkpointed()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    torch.manual_seed(6)
    model(X[4 * rank : 4 * rank + 4]).square().mean().backward()
    results["checkpointed"] = full_gradients(model)
    return results


def exact(rank: int) -> dict[str, Any]:
    torch.manual_seed(6 + rank)  # the generators differ: all ranks use the number of rank 0
    model = dyadic(share_base=True)
    parallel = DistributedDataParallel(model)
    parallel(DYADIC_X[4 * rank : 4 * rank + 4]).square().sum().backward()
    return gradients(model)


def half_precision(rank: int) -> dict[str, Any]:
    """Compute products in bfloat16, and Parameters and KL in float32."""
    model = reader().float()
    before = kl(model).detach()
    shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16), reshard_after_forward=True)
    with flipout.hold(model, seed=7, first=4 * rank):
        terms = elbo_of(model)(TOKENS[4 * rank : 4 * rank + 4], TARGETS[4 * rank : 4 * rank + 4])
    terms.loss.backward()
    return {"kl": (before, terms.kl.detach()), "loss": terms.loss.detach(), "gradients": full_gradients(model)}


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
    messages = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except Unsupported as error:
            messages[name] = str(error)
    return messages


def from_meta() -> tuple[dict[str, Any], str]:
    """Convert and shard a model on the meta device. Return its state after resets, and the refusal without resets."""
    models = []
    for _ in range(2):
        with torch.device("meta"):
            model: Any = flipout.perturb(Reader(), flipout.MeanField(std=0.3, prior=PRIORS["closed form"]))
        models.append(shard(model).to_empty(device="cpu"))
    for module in models[0].modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    models[0](TOKENS)
    try:
        models[1](TOKENS)
    except Unsupported as error:
        return full_state(models[0]), str(error)
    return full_state(models[0]), ""


def example_weights(rank: int) -> torch.Tensor:
    """Return the weights that this rank's examples see, after gathering them."""
    model = shard(reader())
    with flipout.hold(model, seed=7, first=4 * rank):
        model(TOKENS[4 * rank : 4 * rank + 4])
        model.lstm.unshard()
        return flipout.example_weights(model.lstm)["weight_hh_l0"].detach()


def guarded(rank: int) -> tuple[bool, bool]:
    """Skip a step whose gradient is bad in the shard of one rank. Return whether it was skipped and changed nothing."""
    model = shard(reader())
    before = full_state(model)
    for parameter in model.parameters():
        parameter.grad = parameter.detach().clone()
    if rank:
        model.lstm.weight_hh_l0.grad.to_local()[0, 0] = float("nan")
    skipped = Guard(optimizer_of(model), model).step()
    return skipped is not None, all(torch.equal(value, before[name]) for name, value in full_state(model).items())


def saved(rank: int, folder: str) -> dict[str, Any]:
    """Take two steps, write a checkpoint, and return what the third step gives."""
    model = shard(reader(share_base=True))
    optimizer, half = optimizer_of(model), slice(4 * rank, 4 * rank + 4)
    torch.manual_seed(6)
    train(elbo_of(model), optimizer, half, 2)
    parameters, state = get_state_dict(model, optimizer)
    dcp.save({"model": parameters, "optimizer": state}, checkpoint_id=f"{folder}/checkpoint")
    state, description = full_state(model), str(flipout.summary(model))
    torch.manual_seed(9)
    return {"state": state, "next": train(elbo_of(model), optimizer, half, 1), "summary": description}


def main(folder: str) -> None:
    rank = joined()
    results = {
        "exact": exact(rank),
        "trained": trained(rank),
        "parts": gradients_of_parts(rank),
        "half precision": half_precision(rank),
        "refusals": refusals(),
        "meta": from_meta(),
        "example weights": example_weights(rank),
        "guard": guarded(rank),
        "saved": saved(rank, folder),
    }
    torch.save(results, f"{folder}/{rank}.pt")
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
