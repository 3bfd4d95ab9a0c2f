"""Finds the weights that `perturb` leaves without noise, and warns of them."""

import warnings
from collections.abc import Iterator
from fnmatch import fnmatchcase
from math import prod
from operator import attrgetter

from torch import Tensor, nn

from ._reprs import first_few
from .errors import LeftPlain
from .nn.base import Perturbed
from .nn.companions import companion_names
from .nn.kinds import class_path
from .nn.scaled import Scaled

_SHOWN = 6  # types, and paths of each, that the warning names
# Embeddings and norms have noise only where `where` selects them. A module of another type may be anything, whatever
# word is part of its name.
_PLAIN_BY_CHOICE = (
    nn.Embedding,
    nn.EmbeddingBag,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.GroupNorm,
    nn.modules.batchnorm._NormBase,
)
# Tables and tokens that transformers, timm, torchvision and PEFT keep as Parameters of a module of their own, and the
# biases of torch's attention.
_TABLES = """cls_token class_token dist_token distillation_token mask_token sep_token reg_token register_tokens
    query_tokens class_embedding class_embeddings mask_embedding image_newline patch_pos_embed
    pos_embed pos_embedding pos_embeddings position_embedding position_embeddings positional_embedding
    positional_embeddings abs_pos_embed absolute_pos_embed absolute_position_embeddings temporal_embedding
    relative_position_bias_table relative_attention_bias relative_position_embeddings rel_pos_h rel_pos_w
    row_embed col_embed bias_k bias_v"""


def is_weight(parameter: Tensor) -> bool:
    """Return True if a Parameter has two or more dimensions."""
    return parameter.dim() > 1


def perturbed_parameters(model: nn.Module) -> dict[int, Tensor]:
    """Return the perturbed Parameters of a model by their ids."""
    layers = [layer for layer in model.modules() if isinstance(layer, Perturbed)]
    found = [attrgetter(name)(layer) for layer in layers for name in layer.flipout.distributions]
    return {id(parameter): parameter for parameter in found}


def share_perturbed(model: nn.Module) -> float:
    """Return the share of a model's weights that are perturbed, counting numbers. Vectors and spreads do not count."""
    noisy, companions = perturbed_parameters(model), _companions(model)
    weights = [p for p in model.parameters() if is_weight(p) and id(p) not in companions]
    total = sum(prod(p.shape) for p in weights)
    return sum(prod(p.shape) for p in weights if id(p) in noisy) / total if total else 0.0


def _companions(model: nn.Module) -> set[int]:
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
    left: dict[str, list[str]] = {}
    for name, owner in _plain_weights(model):
        if not _is_table(owner, name.rpartition(".")[2]):
            left.setdefault(class_path(type(owner)), []).append(name)
    return left


def _tables(model: nn.Module) -> list[str]:
    """Return the weights of embeddings and norms that have no noise."""
    return [name for name, owner in _plain_weights(model) if _is_table(owner, name.rpartition(".")[2])]


def _plain_weights(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the weights that have no noise, each with its module."""
    noisy, companions = perturbed_parameters(model), _companions(model)
    for name, parameter in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0].partition("parametrizations")[0].rstrip("."))
        if id(parameter) in noisy or id(parameter) in companions or not is_weight(parameter):
            continue
        if not isinstance(owner, Scaled):  # whose scales have the noise, and whose weight is plain on purpose
            yield name, owner


def _is_table(owner: nn.Module, local: str) -> bool:
    """Return True if a Parameter is an embedding or part of a norm: by the type of its owner, or by its name."""
    return isinstance(owner, _PLAIN_BY_CHOICE) or local in _TABLES.split()


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
    lines, tables = [], _tables(model)
    for kind, names in list(left.items())[:_SHOWN]:
        lines.append(f"  {kind}: {first_few(names, _SHOWN)}")
    if len(left) > _SHOWN:
        lines.append(f"  and {len(left) - _SHOWN} more types")
    if tables:
        lines.append(f"Embeddings and norms ({first_few(tables, 3)}) stay plain too, unless `where` names them.")
    names = [name for listed in left.values() for name in listed]
    everything, noisy = dict(model.named_parameters()), perturbed_parameters(model)
    globs = _globs(names, [name for name in everything if name not in names])
    present = [name for name, parameter in everything.items() if id(parameter) in noisy]
    exact = _globs(present, [name for name in everything if name not in present])
    warnings.warn(
        f"flipout.perturb gave noise to {share_perturbed(model):.1%} of the weights of {type(model).__name__}. It left "
        "these plain, since it does not know these types of modules:\n"
        + "\n".join(lines)
        + f"\nTo include the listed ones, perturb them too: flipout.perturb(model, distribution, where={globs!r}). To "
        f"leave them out without this warning, say what to perturb. This is what has noise now: where={exact!r}.",
        LeftPlain,
        stacklevel=3,
    )
