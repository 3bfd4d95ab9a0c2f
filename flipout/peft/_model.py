"""Turn the LoRA adapter of a PEFT model into a posterior."""

from operator import attrgetter
from typing import Any, TypeVar

from torch import nn

from .._convert import perturb
from ..bayes import Normal
from ..nn.base import Perturbed
from ..nn.companions import companion_names
from ..nn.derived import by_reads
from ..schemes import SchemeName
from ._config import PosteriorConfig, Which
from ._layer import TABLES, BayesianLayer, posterior_parameters
from ._mixing import mix_in
from ._refusals import check_adapter, check_peft_model, chosen_adapter, lora_layers
from ._saving import BayesianModel

M = TypeVar("M", bound=nn.Module)


def bayesian_lora(
    model: M,
    *,
    std: float = 0.002,
    prior_std: float = 0.2,
    which: Which = "A",
    scheme: SchemeName = "flipout",
    adapter: str | None = None,
    example_inputs: Any = None,
) -> M:
    """Give a LoRA adapter of a PEFT model a Gaussian posterior, in place.

    Each weight of LoRA's A gets a learned standard deviation beside its mean; B stays deterministic, as in BLoB. Every
    sequence of a batch has a sample of A of its own, the same one for all of its tokens. Other adapters, and those that
    are added later, stay plain until they are named. An optimiser made before does not know the new Parameters.

    Args:
        model: A `PeftModel` with a LoRA adapter.
        std: The initial standard deviation of each weight. The default is about that of BLoB's code.
        prior_std: The standard deviation of the prior, whose mean is 0.
        which: The matrices with noise: "A", "B", or "AB".
        scheme: Who in the batch shares the noise.
        adapter: The name of the adapter, the active one by default.
        example_inputs: As in `flipout.perturb`, for models that fold tokens into the rows.

    Returns:
        The model itself. Its `save_pretrained` and `load_adapter` now save and load the spreads too.

    Raises:
        InvalidArgument: This is no `PeftModel`, or an argument is out of its range.
        AlreadyPerturbed: The adapter has a posterior already.
        Unsupported: The adapter is not LoRA, or a variant (DoRA, `target_parameters`, …) that is not known to be right.

    Example:
        >>> model = peft.get_peft_model(base, peft.LoraConfig(target_modules=["q_proj", "v_proj"]))
        >>> model = flipout.peft.bayesian_lora(model, std=0.01, prior_std=0.2)
        >>> flipout.bayes.kl(model)
    """
    config = PosteriorConfig(std, prior_std, which, scheme)
    check_peft_model(model, "bayesian_lora")
    name = chosen_adapter(model, adapter, "bayesian_lora")
    check_adapter(model, name)
    convert(model, name, config, example_inputs)
    return model


def convert(model: Any, adapter: str, config: PosteriorConfig, example_inputs: Any = None) -> None:
    """Give the matrices of an adapter their noise, and make the modules around them handle it."""
    inner = model.get_base_model()
    layers = lora_layers(inner, adapter)
    tables = _open_tables([layer for _, layer in layers])
    names = {name for label, layer in layers for name in _chosen(label, layer, adapter, config.which)}
    try:
        # The inner model is the root: PEFT's forward passes and `generate` both call it.
        perturb(
            inner,
            config.noise(Normal(0.0, float(config.prior_std))),
            where=names.__contains__,
            scheme=config.scheme,
            example_inputs=example_inputs,
        )
    except BaseException:
        for table, kind in tables.items():
            table.__class__ = kind
        raise
    for _, layer in layers:
        mix_in(BayesianLayer, layer)
        for _, _, module, name in posterior_parameters(layer, adapter):
            module.train(model.training)  # an adapter that PEFT adds to a model in eval mode is in training mode itself
            for companion in map(module.__getattr__, companion_names(module, name)):
                if isinstance(companion, nn.Parameter):
                    companion.requires_grad_(attrgetter(name)(module).requires_grad)
    mix_in(BayesianModel, model)


def _chosen(label: str, layer: Any, adapter: str, which: Which) -> list[str]:
    """Return the names of the adapter's Parameters in one layer that get noise."""
    names = []
    for matrix in which:
        if adapter in layer.lora_A:
            names.append(f"{label}.lora_{matrix}.{adapter}.weight")
        else:
            names.append(f"{label}.lora_embedding_{matrix}.{adapter}")
    return names


def _open_tables(layers: list[Any]) -> dict[nn.Module, type]:
    """Prepare tables that are perturbed already for another adapter. Return their previous classes."""
    before = {}
    for table in (getattr(layer, kind) for layer in layers for kind in TABLES):
        adapters = tuple(table)
        if isinstance(table, Perturbed):
            before[table] = type(table)
            table.__class__ = by_reads(nn.ParameterDict, adapters, (), False)
    return before
