"""Posterior samples as ordinary LoRA adapters, for whoever serves several adapters at once."""

import copy
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from .._files import new_folder
from .._shards import GATHER, refuse_shards
from ..draws.draw import fresh_seed
from ..errors import InvalidArgument, NotPerturbed
from ..nn.contexts import hold, using
from ..nn.held_weights import held_pass, weights_of
from ._disk import WEIGHTS, write_tensors
from ._layer import BayesianLayer, posterior_parameters
from ._refusals import check_peft_model, chosen_adapter, peft_package
from ._saving import config_of, without_companions


@torch.no_grad()
def export_samples(
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    samples: int = 8,
    seed: int | None = None,
    adapter: str | None = None,
) -> list[Path]:
    """Write samples of an adapter's posterior as ordinary LoRA adapters.

    Each is a folder that PEFT and any server with multi-LoRA can load; together they are an ensemble. Sample n has the
    weights that row n sees inside `flipout.hold(model, seed, group=1)`.

    Args:
        model: A model with a posterior, from `bayesian_lora` or `load`.
        folder: Where the folders `sample-0`, `sample-1`, … are put.
        samples: How many, all independent.
        seed: The seed of the samples. By default one number is read from torch's generator.
        adapter: The name of the adapter, the active one by default.

    Returns:
        The folders.

    Raises:
        NotPerturbed: The adapter has no posterior.
        InvalidArgument: One of the folders exists already, or an argument is out of its range.

    Example:
        >>> flipout.peft.export_samples(model, "ensemble", samples=8, seed=1)
    """
    samples = whole_number("samples", samples, 1, of="export_samples")
    check_peft_model(model, "export_samples")
    name = chosen_adapter(model, adapter, "export_samples")
    if config_of(model, name) is None:
        raise NotPerturbed(
            f"export_samples: adapter {name!r} has no posterior. Give it one: flipout.peft.bayesian_lora(model)."
        )
    refuse_shards(model, "export_samples", GATHER)
    seed = int(fresh_seed(torch.device("cpu"))) if seed is None else whole_number("seed", seed, of="export_samples")
    folders = [Path(folder) / f"sample-{n}" for n in range(samples)]
    for path in folders:
        if path.exists():
            raise InvalidArgument(f"export_samples: {path} exists already. Give another folder, or remove this one.")
    state = without_companions(model, model.state_dict())
    for n, path in enumerate(folders):
        with hold(model, seed, first=n, group=1), using(model, scheme="flipout"):
            _write_adapter(path, model, name, {**state, **_sampled(model, name)})
    return folders


def _sampled(model: nn.Module, adapter: str) -> dict[str, Tensor]:
    """Return the adapter's matrices in the held draw, under their names in the model."""
    found = {}
    for label, layer in model.named_modules():
        for kind, _, module, name in posterior_parameters(layer, adapter) if isinstance(layer, BayesianLayer) else ():
            weight = weights_of(module, *held_pass(module), example=0)[name].squeeze(0)
            found[f"{label}.{kind}.{adapter}" + (".weight" if name == "weight" else "")] = weight
    return found


def _write_adapter(path: Path, model: Any, adapter: str, state: dict[str, Tensor]) -> None:
    """Write an adapter as PEFT does, completely or not at all."""
    tensors = peft_package().get_peft_model_state_dict(model, state_dict=state, adapter_name=adapter)
    config = copy.deepcopy(model.peft_config[adapter])
    config.inference_mode = True
    with new_folder(path) as fresh:
        # Copies, since safetensors refuses tensors that share memory.
        write_tensors(fresh / WEIGHTS, {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()})
        config.save_pretrained(str(fresh))
