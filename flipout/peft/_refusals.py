"""Which adapters can have a posterior. The others are refused by name."""

from typing import Any

from torch import nn

from .._extras import import_extra
from ..errors import InvalidArgument, Unsupported
from ._mixing import Mixin

_LAYERS = ("Linear", "Embedding", "Conv1d", "Conv2d", "Conv3d")  # those of PEFT's LoRA that tests compare


def peft_package() -> Any:
    """Import PEFT."""
    return import_extra("peft", "flipout.peft", "peft")


def check_peft_model(model: Any, of: str) -> None:
    """Refuse what is not a `PeftModel`."""
    if not isinstance(model, peft_package().PeftModel):
        raise InvalidArgument(
            f"{of}: a {type(model).__name__} given; expected a PeftModel: model = peft.get_peft_model(base, "
            "peft.LoraConfig(…))."
        )


def chosen_adapter(model: Any, adapter: str | None, of: str) -> str:
    """Return the adapter of that name, or the active one.

    Raises:
        InvalidArgument: There is no such adapter, or several are active.
    """
    names, active = list(model.peft_config), model.active_adapters
    if adapter is None and len(active) != 1:
        raise InvalidArgument(f"{of}: the adapters {active} are active; expected one. Name it: {of}(…, adapter=…).")
    name = active[0] if adapter is None else adapter
    if name not in names:
        raise InvalidArgument(f"{of}(adapter={adapter!r}): expected one of the model's adapters, {names}.")
    return name


def check_adapter(model: Any, adapter: str) -> None:
    """Refuse an adapter under which noise on A or B would be wrong.

    Raises:
        Unsupported: It is not LoRA, or a variant of LoRA that computes with its weights in another way.
    """
    config = model.peft_config[adapter]
    kind = getattr(config.peft_type, "value", config.peft_type)
    if kind != "LORA":
        raise Unsupported(
            f"bayesian_lora: adapter {adapter!r} is {kind}, not LoRA. Use peft.LoraConfig(…), or give "
            "its weights noise with flipout.perturb(model, flipout.MeanField(…), where=…)."
        )
    if config.use_dora:
        raise Unsupported(
            f"bayesian_lora: adapter {adapter!r} uses DoRA (use_dora=True), which divides by the norm of the whole "
            "weight, so that examples would need one each. Use plain LoRA or rsLoRA; or share one sample between all "
            "examples: flipout.perturb(model, flipout.MeanField(…), where='*lora_A*', scheme='shared')."
        )
    if getattr(config, "target_parameters", None):
        raise Unsupported(
            f"bayesian_lora: adapter {adapter!r} has target_parameters={config.target_parameters}, for which PEFT "
            "computes the whole weight before the examples are known. Use target_modules."
        )
    if getattr(config, "ensure_weight_tying", False):
        raise Unsupported(
            f"bayesian_lora: adapter {adapter!r} has ensure_weight_tying=True: PEFT ties copies of A, and each copy "
            "would have noise of its own. Leave it off, or leave the embedding out of target_modules."
        )
    for label, layer in lora_layers(model, adapter):
        _check_layer(label, layer, adapter)


def lora_layers(model: nn.Module, adapter: str) -> list[tuple[str, Any]]:
    """Return the LoRA layers that have the adapter, with their names."""
    kind = peft_package().tuners.lora.LoraLayer
    layers: list[tuple[str, Any]] = [
        (label, layer) for label, layer in model.named_modules() if isinstance(layer, kind)
    ]
    return [(label, layer) for label, layer in layers if adapter in {*layer.lora_A, *layer.lora_embedding_A}]


def _check_layer(label: str, layer: Any, adapter: str) -> None:
    lora = peft_package().tuners.lora.layer
    plain = type(layer)._origin[1] if issubclass(type(layer), Mixin) else type(layer)
    if adapter in layer.lora_variant:
        variant = type(layer.lora_variant[adapter]).__name__
        raise Unsupported(
            f"bayesian_lora: {label}: adapter {adapter!r} is a variant of LoRA, {variant}, which computes with A "
            "in its own way. Use plain LoRA or rsLoRA."
        )
    if plain not in [getattr(lora, name) for name in _LAYERS]:
        raise Unsupported(
            f"bayesian_lora: {label} is {plain.__module__}.{plain.__qualname__}, whose noise was not compared "
            f"with a loop over examples yet. LoRA's {', '.join(_LAYERS)} were. Leave it out of target_modules."
        )
