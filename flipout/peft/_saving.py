"""Saving a posterior with its adapter, and loading it again."""

import os
import warnings
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._shards import GATHER, refuse_shards
from ..errors import DataError, InvalidArgument, Unsupported
from ..nn.companions import learned_companions
from ._config import PosteriorConfig
from ._disk import KEY, SPREADS, adapter_folder, plain_config, read_posterior, write_posterior
from ._layer import BayesianLayer, posterior_parameters
from ._mixing import Mixin
from ._refusals import check_adapter, peft_package


def learned_spreads(model: nn.Module, adapter: str) -> Iterator[tuple[str, Any, str, str]]:
    """Yield the learned spreads of an adapter.

    Yields:
        The name in the file, the perturbed module, the Parameter's name there, and the suffix of the spread.
    """
    for label, layer in model.named_modules():
        if isinstance(layer, BayesianLayer):
            for kind, _, module, name in posterior_parameters(layer, adapter):
                for suffix in learned_companions(module, name):
                    yield f"{label}.{kind}.{suffix}", module, name, suffix


def config_of(model: nn.Module, adapter: str) -> PosteriorConfig | None:
    """Return the settings of an adapter's posterior, None if the adapter is plain."""
    found = [
        (kind[-1], module.flipout, name)
        for layer in model.modules()
        if isinstance(layer, BayesianLayer)
        for kind, _, module, name in posterior_parameters(layer, adapter)
    ]
    if not found:
        return None
    _, plan, name = found[0]
    noise: Any = plan.distributions[name]
    which: Any = "".join(sorted({matrix for matrix, _, _ in found}))
    return PosteriorConfig(noise.std, noise.prior.std, which, plan.converted_scheme.name)  # pyright: ignore[reportArgumentType]


class BayesianModel(Mixin):
    """Mixed into a `PeftModel`, before it: saving and loading include the spreads."""

    def save_pretrained(
        self,
        save_directory: str,
        safe_serialization: bool = True,
        selected_adapters: list[str] | None = None,
        save_embedding_layers: str | bool = "auto",
        is_main_process: bool = True,
        **kwargs: Any,
    ) -> None:
        """Save the adapters as PEFT does, and beside each the spreads and the kind of its posterior."""
        model: Any = self
        selected = list(model.peft_config) if selected_adapters is None else selected_adapters
        configs = {adapter: config_of(model, adapter) for adapter in selected}
        if not safe_serialization and any(configs.values()):
            raise Unsupported("save_pretrained(safe_serialization=False): a posterior is saved in safetensors only.")
        refuse_shards(model, "save_pretrained", GATHER)
        state = kwargs.pop("state_dict", None) or model.state_dict()
        plain = without_companions(model, state)
        plain_model: Any = super()
        plain_model.save_pretrained(
            save_directory,
            safe_serialization=safe_serialization,
            selected_adapters=selected,
            save_embedding_layers=save_embedding_layers,
            is_main_process=is_main_process,
            state_dict=plain,
            **kwargs,
        )
        for adapter, config in configs.items():
            if config is not None and is_main_process:
                spreads = {
                    name: attrgetter(f"{local}_{suffix}")(module).detach().cpu().contiguous()
                    for name, module, local, suffix in learned_spreads(model, adapter)
                }
                folder = adapter_folder(save_directory, adapter)
                write_posterior(folder, adapter, config, spreads)

    def add_weighted_adapter(self, adapters: Sequence[str], *args: Any, **kwargs: Any) -> Any:
        """Combine plain adapters as PEFT does. Refuse those with a posterior: PEFT would combine their means alone."""
        model: Any = self
        for adapter in adapters:
            if adapter in model.peft_config and config_of(model, adapter) is not None:
                raise Unsupported(
                    f"add_weighted_adapter: adapter {adapter!r} has a posterior, and PEFT would make a plain adapter "
                    "of the means, without a warning. To combine means, load the folders with "
                    "peft.PeftModel.from_pretrained(…); to combine samples, write them as plain adapters with "
                    "flipout.peft.export_samples(model, folder)."
                )
        return model.base_model.add_weighted_adapter(adapters, *args, **kwargs)

    def load_adapter(self, model_id: str, adapter_name: str, *args: Any, **kwargs: Any) -> Any:
        """Load an adapter as PEFT does, and its posterior if it was saved with one."""
        model: Any = self
        saved = read_posterior(_inside(model_id, kwargs.get("subfolder")))
        before = config_of(model, adapter_name) if adapter_name in model.peft_config else None
        if saved is None:
            if before is not None:
                raise DataError(
                    f"load_adapter({str(model_id)!r}, {adapter_name!r}): the adapter has a posterior, and the folder "
                    "has none. Load it under another name, and give it a posterior there if it needs one: "
                    "flipout.peft.bayesian_lora(…)."
                )
            return super().load_adapter(model_id, adapter_name, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=f".*{KEY}")  # PEFT says that it drops the posterior
            result = super().load_adapter(model_id, adapter_name, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        restore_posterior(model, adapter_name, saved.config, saved.spreads)
        return result


def load(
    base: nn.Module,
    folder: str | os.PathLike[str],
    *,
    adapter: str | None = None,
    is_trainable: bool = False,
    **options: Any,
) -> Any:
    """Load an adapter with its posterior.

    Args:
        base: The base model, or a `PeftModel` that gets one more adapter.
        folder: Where `save_pretrained` has put the adapter.
        adapter: The adapter's name in the model, by default the name that it was saved under. Seeds give the same
            draws only under the same name.
        is_trainable: Load it for training.
        **options: Further arguments of `PeftModel.from_pretrained` or `load_adapter`, such as `subfolder`.

    Returns:
        The model. Under a seed it predicts bit for bit what the saved model did.

    Raises:
        DataError: The folder has no posterior, or its files do not belong together or are damaged.
        InvalidArgument: The model has an adapter of that name already.

    Example:
        >>> model.save_pretrained("answers")
        >>> again = flipout.peft.load(base, "answers")
    """
    package = peft_package()
    path = _inside(folder, options.get("subfolder"))
    saved = read_posterior(path)
    if saved is None:
        raise DataError(
            f"load: {str(path)!r} has no adapter with a posterior. Load a plain one with "
            "peft.PeftModel.from_pretrained(…), and give it a posterior: flipout.peft.bayesian_lora(model)."
        )
    name = adapter or saved.adapter
    options |= {"is_trainable": is_trainable}
    if not isinstance(base, package.PeftModel):
        plain = plain_config(path, saved)
        model = package.PeftModel.from_pretrained(base, str(folder), adapter_name=name, config=plain, **options)
    else:
        model: Any = base
        if name in model.peft_config:
            raise InvalidArgument(
                f"load(adapter={name!r}): the model has this adapter. Choose another name: adapter=…."
            )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=f".*{KEY}")
            package.PeftModel.load_adapter(model, str(folder), name, **options)
    restore_posterior(model, name, saved.config, saved.spreads)
    return model


def _inside(folder: str | os.PathLike[str], subfolder: str | None) -> Path:
    return Path(folder) / (subfolder or "")


def restore_posterior(model: Any, adapter: str, config: PosteriorConfig, spreads: dict[str, Tensor]) -> None:
    """Give an adapter its posterior, or write the saved spreads into the posterior that it has."""
    from ._model import convert

    present = config_of(model, adapter)
    if present is None:
        check_adapter(model, adapter)
        convert(model, adapter, config)
    elif (present.which, present.prior_std) != (config.which, config.prior_std):
        raise DataError(f"the saved posterior is {config}, but adapter {adapter!r} has {present} already.")
    targets = {name: learned_companions(m, local)[suffix] for name, m, local, suffix in learned_spreads(model, adapter)}
    wrong = targets.keys() ^ spreads.keys() or {n for n in targets if targets[n].shape != spreads[n].shape}
    if wrong:
        raise DataError(
            f"{SPREADS}: the spreads do not fit adapter {adapter!r}: {sorted(wrong)[0]} is missing, unknown or of "
            "another shape. Load it onto the base model that it was trained on."
        )
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(spreads[name])


def without_companions(model: nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict without learned spreads and priors, which PEFT would take for LoRA matrices."""
    companions = set()
    for label, layer in model.named_modules():
        if isinstance(layer, BayesianLayer):
            for kind, adapter, module, name in posterior_parameters(layer):
                plan, path = module.flipout, f"{label}.{kind}" + (f".{adapter}" if name != adapter else "")
                suffixes = (*plan.learned[name], *plan.prior_suffixes[name])
                companions |= {f"{path}.{name}_{suffix}" for suffix in suffixes}
    return {name: value for name, value in state.items() if name not in companions}
