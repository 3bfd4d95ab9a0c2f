"""A member of a population as a LoRA adapter of rank one: ΔW = σ r sᵀ is the product of two vectors."""

import json
from dataclasses import dataclass
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._files import remove_unfinished, write_atomically
from .._tensor_files import pack_tensors
from ..errors import RunError, Unsupported
from ..nn.base import Perturbed
from ..nn.declaration import sign_groups
from ..nn.foreign import Conv1D
from ..nn.held_weights import held_pass
from ..nn.models import perturbed_layers
from ..nn.parameters import Perturbations
from ..schemes import RankOne

_PREFIX = "base_model.model."
_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"


@dataclass(frozen=True, eq=False, repr=False)
class Adapter:
    """A LoRA adapter of rank one in PEFT's format.

    Norms have no matrix, so they are kept whole (`modules_to_save`).
    """

    tensors: dict[str, Tensor]  # The factors of each matrix, and the Parameters of each norm, by PEFT's names.
    config: dict[str, Any]  # What `adapter_config.json` says.

    def __repr__(self) -> str:
        full_modules = (
            f", {len(self.config['modules_to_save'])} whole modules" if self.config["modules_to_save"] else ""
        )
        return f"Adapter({len(self.config['target_modules'])} matrices of rank one{full_modules})"

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the adapter to a folder, each file completely or not at all.

        Args:
            folder: Created if it does not exist.

        Raises:
            MissingExtra: safetensors is not installed.
            RunError: The folder cannot be written.

        Example:
            >>> population.adapter(3).save("member-3")
        """
        content, target = pack_tensors(self.tensors), Path(folder)
        try:
            target.mkdir(parents=True, exist_ok=True)
            remove_unfinished(target)
            write_atomically(target / _WEIGHTS, content)
            write_atomically(target / _CONFIG, json.dumps(self.config, indent=2) + "\n")
        except OSError as error:
            raise RunError(f"An adapter cannot be written to {folder} ({error}): choose another folder.") from error


@torch.no_grad()
def adapter_of(model: nn.Module, member: int) -> Adapter:
    """Return the adapter of one example of the held draw."""
    tensors: dict[str, Tensor] = {}
    targets: list[str] = []
    full_modules: list[str] = []
    is_turned = False
    for label, layer in perturbed_layers(model).items():
        noise = _noise_of(layer)
        vectors = [name for name in layer.flipout.distributions if sign_groups(layer, name) is None]
        has_matrix = any(parameter.dim() > 1 for parameter in layer.parameters(recurse=False))
        if vectors and has_matrix:
            raise _refused(label, vectors[0], "a LoRA adapter has no noise of biases")
        if vectors:
            full_modules.append(label)
            for name, parameter in layer.named_parameters():
                value = _vector(noise, name, member) if name in vectors else parameter
                tensors[f"{_PREFIX}{label}.{name}"] = _portable(value)
            continue
        if list(layer.flipout.distributions) != ["weight"]:
            raise _refused(label, next(iter(layer.flipout.distributions)), f"not yet for a {type(layer).__name__}")
        tensors.update(_factors(label, layer, noise, member))
        targets.append(label)
        is_turned |= isinstance(layer, Conv1D)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": getattr(model, "name_or_path", None) or None,
        "r": 1,
        "lora_alpha": 1,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": is_turned,
        "target_modules": targets,
        "modules_to_save": full_modules or None,
        "inference_mode": True,
    }
    return Adapter(tensors, config)


def _noise_of(layer: Perturbed) -> Perturbations:
    scheme = layer.flipout.scheme
    if not isinstance(scheme, RankOne):
        raise Unsupported(
            f"adapter: scheme '{scheme.name}' gives members a perturbation that is no rank-one matrix. Use "
            "EvolutionStrategy(…, scheme='rank_one'), or freeze a copy of the model at the member's draw."
        )
    session, keys = held_pass(layer)
    parameter = attrgetter(next(iter(layer.flipout.distributions)))(layer)
    return Perturbations(layer, session.to(parameter.device), keys, parameter.dtype, scheme)


def _vector(noise: Perturbations, name: str, member: int) -> Tensor:
    return RankOne().vector(noise.for_examples(name, noise.session.offset + member, 1)).squeeze(0)


def _factors(label: str, layer: Perturbed, noise: Perturbations, member: int) -> dict[str, Tensor]:
    """Return the factors of a layer's weight. PEFT multiplies them as B A, (out, 1) with (1, in)."""
    rows, columns = RankOne().factors(noise.for_examples("weight", noise.session.offset + member, 1))
    rows, columns = _portable(rows), _portable(columns)  # (1, d0) and (1, d1)
    if isinstance(layer, nn.Embedding):
        return {
            f"{_PREFIX}{label}.lora_embedding_A": rows,
            f"{_PREFIX}{label}.lora_embedding_B": columns.mT.contiguous(),
        }
    if isinstance(layer, Conv1D):
        rows, columns = columns, rows
    elif not isinstance(layer, nn.Linear):
        raise _refused(label, "weight", f"not yet for a {type(layer).__name__}")
    return {f"{_PREFIX}{label}.lora_A.weight": columns, f"{_PREFIX}{label}.lora_B.weight": rows.mT.contiguous()}


def _portable(value: Tensor) -> Tensor:
    """Return a copy on the CPU, at least in single precision."""
    return value.detach().to("cpu", torch.promote_types(value.dtype, torch.float32), copy=True).contiguous()


def _refused(label: str, name: str, why: str) -> Unsupported:
    return Unsupported(
        f"adapter: {label}.{name} has noise: {why}. Leave it out of the training before the strategy is made: "
        "parameter.requires_grad_(False). Or freeze a copy of the model at the member's draw."
    )
