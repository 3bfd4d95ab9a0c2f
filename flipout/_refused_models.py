"""Models that other libraries have wrapped, offloaded or left half-built, so that they cannot be perturbed now."""

from collections.abc import Iterable, Mapping
from operator import attrgetter

from torch import nn

from ._where import Choice
from .distributions import Distribution, LearnedDistribution
from .errors import Unsupported


def refuse_wrapped(model: nn.Module, distribution: Distribution) -> None:
    """Refuse to add Parameters to a model in DistributedDataParallel, which averages only those it found at first."""
    parallel = any(isinstance(module, nn.parallel.DistributedDataParallel) for module in model.modules())
    if parallel and isinstance(distribution, LearnedDistribution):
        raise Unsupported(
            f"perturb(DistributedDataParallel(…), {type(distribution).__name__}(…)): the Parameters that it adds would "
            "not be synchronised, and differ from rank to rank. Perturb first, then wrap: "
            "DistributedDataParallel(flipout.perturb(model, …))."
        )


def refuse_offloaded(model: nn.Module, distribution: Distribution) -> None:
    """Refuse to add Parameters to a model that accelerate offloads: its hooks would not find their values."""
    for label, module in model.named_modules():
        is_away = hasattr(module, "_hf_hook") and any(p.is_meta for p in module.parameters(recurse=False))
        if is_away and isinstance(distribution, LearnedDistribution):
            raise Unsupported(
                f"{label}: its weights are offloaded by accelerate, and what {type(distribution).__name__} learns "
                "would not be. Perturb first, then offload: accelerate.cpu_offload(flipout.perturb(model, …))."
            )


def refuse_late_ties(model: nn.Module, choices: Iterable[Choice]) -> None:
    """Refuse Parameters that transformers will tie to others after it has loaded them: noise belongs to both names."""
    chosen = {id(attrgetter(name)(choice.layer)) for choice in choices for name in choice.parameters}
    for label, module in model.named_modules():
        ties = getattr(module, "all_tied_weights_keys", None)
        for target, source in ties.items() if isinstance(ties, Mapping) else ():
            pair = [attrgetter(name)(module) for name in (target, source)]
            if pair[0] is not pair[1] and pair[0].is_meta and {id(p) for p in pair} & chosen:
                first, second = (f"{label}.{name}".lstrip(".") for name in (target, source))
                raise Unsupported(
                    f"{first} will be tied to {second} by from_pretrained(…), after perturb has seen them apart. "
                    "Perturb when the model is loaded: flipout.perturb(Model.from_pretrained(…), …), then load "
                    "spreads that were learned with load_state_dict; or leave both out with `where`."
                )
