"""Weights that `perturb` leaves without noise, and says so."""

import warnings
from fnmatch import fnmatchcase
from math import prod
from operator import attrgetter

from torch import Tensor, nn

from .errors import LeftPlain
from .nn.base import Perturbed
from .nn.companions import companion_names
from .nn.kinds import class_path
from .nn.scaled import Scaled

_SHOWN = 6  # types, and paths of each, that the warning names


def is_weight(parameter: Tensor) -> bool:
    """Return True if a Parameter has two or more dimensions that are longer than 1."""
    return sum(size > 1 for size in parameter.shape) > 1


def perturbed_parameters(model: nn.Module) -> dict[int, Tensor]:
    """Return the perturbed Parameters of a model by their ids."""
    layers = [layer for layer in model.modules() if isinstance(layer, Perturbed)]
    found = [attrgetter(name)(layer) for layer in layers for name in layer.flipout.distributions]
    return {id(parameter): parameter for parameter in found}


def share_perturbed(model: nn.Module) -> float:
    """Return the share of a model's weights that are perturbed, counting numbers. Vectors and spreads do not count."""
    noisy, beside = perturbed_parameters(model), _beside(model)
    weights = [p for p in model.parameters() if is_weight(p) and id(p) not in beside]
    total = sum(prod(p.shape) for p in weights)
    return sum(prod(p.shape) for p in weights if id(p) in noisy) / total if total else 0.0


def _beside(model: nn.Module) -> set[int]:
    """Return the ids of what distributions learn."""
    layers = [layer for layer in model.modules() if isinstance(layer, Perturbed)]
    names = [
        (layer, companion)
        for layer in layers
        for name in layer.flipout.distributions
        for companion in companion_names(layer, name)
    ]
    return {id(attrgetter(companion)(layer)) for layer, companion in names}


def left_plain(model: nn.Module) -> dict[str, list[str]]:
    """Return, by the class of their module, the weights that have no noise, without embeddings and norms."""
    noisy, beside, left = perturbed_parameters(model), _beside(model), dict[str, list[str]]()
    for name, parameter in model.named_parameters():
        path, _, local = name.rpartition(".")
        owner = model.get_submodule(path.partition("parametrizations")[0].rstrip("."))
        if id(parameter) in noisy or id(parameter) in beside or not is_weight(parameter):
            continue
        if isinstance(owner, Scaled):
            continue  # its scales have the noise, and its weight is plain on purpose
        if not isinstance(owner, nn.Embedding | nn.EmbeddingBag) and not _is_table(type(owner).__name__, local):
            left.setdefault(class_path(type(owner)), []).append(name)
    return left


def _is_table(kind: str, local: str) -> bool:
    """Return True if a Parameter is, by its names, an embedding or part of a norm."""
    return any(word in kind.lower() for word in ("embed", "norm")) or any(
        word in local.lower() for word in ("embed", "token", "pos_", "position")
    )


def _globs(names: list[str], others: list[str]) -> list[str]:
    """Return the shortest globs that match these names and no others."""
    globs: dict[str, None] = {}
    for name in names:
        parts = name.split(".")
        candidates = (f"*.{'.'.join(parts[-length:])}" for length in range(1, len(parts)))
        fitting = (glob for glob in candidates if not any(fnmatchcase(other, glob) for other in others))
        globs[next(fitting, name)] = None
    return list(globs)


def warn_of_left(model: nn.Module) -> None:
    """Warn once of the weights that `perturb` left plain without being told to."""
    left = left_plain(model)
    if not left:
        return
    lines = []
    for kind, names in list(left.items())[:_SHOWN]:
        more = f", … ({len(names)} in all)" if names[_SHOWN:] else ""
        lines.append(f"  {kind}: {', '.join(names[:_SHOWN])}{more}")
    if len(left) > _SHOWN:
        lines.append(f"  and {len(left) - _SHOWN} more types")
    names = [name for listed in left.values() for name in listed]
    globs = _globs(names, [name for name, _ in model.named_parameters() if name not in names])
    warnings.warn(
        f"flipout.perturb gave noise to {share_perturbed(model):.1%} of the weights of {type(model).__name__}. It left "
        "these plain, since it does not know their types:\n"
        + "\n".join(lines)
        + f"\nTo include them, perturb them too: flipout.perturb(model, distribution, where={globs!r}). To leave them "
        "out without this warning, say what to perturb, as in where='*.weight'.",
        LeftPlain,
        stacklevel=3,
    )
