"""Which Parameters `perturb` perturbs: the layer types it knows, the choice, and the refusals."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import attrgetter

import torch
from torch import nn
from torch.nn.utils import parametrize

from . import nn as perturbed
from .errors import AlreadyPerturbed, InvalidArgument, UnknownParameter, Unsupported, WeightReused
from .nn.base import Perturbed, Where, matcher, own_parameter

_LAYERS: dict[type[nn.Module], type[Perturbed]] = {layer.torch_type: layer for layer in perturbed.LAYERS}


def register(torch_type: type[nn.Module], layer_type: type[Perturbed]) -> None:
    """Let `perturb` turn modules of exactly `torch_type` into `layer_type`, which subclasses Perturbed and it."""
    if not (issubclass(layer_type, Perturbed) and issubclass(layer_type, torch_type)):
        raise InvalidArgument(
            f"register({torch_type.__name__}, {layer_type.__name__}): the layer has to subclass both "
            f"flipout.nn.Perturbed and {torch_type.__name__}, in this order, since conversion keeps the object."
        )
    _LAYERS[torch_type] = layer_type


@dataclass
class Choice:
    """What happens to one layer."""

    layer: nn.Module
    label: str
    layer_type: type[Perturbed]
    parameters: list[str] = field(default_factory=list)


def choose(model: nn.Module, where: Where | None) -> list[Choice]:
    """The layers to convert and the Parameters of each; a Parameter that is chosen is chosen wherever it is used."""
    layers: list[Choice] = []
    aliases: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(name)
    known: dict[int, list[tuple[Choice, str]]] = {}
    default: set[int] = set()
    extra: set[int] = set()  # learned Parameters of earlier conversions
    taken: set[int] = set()
    for label, layer in model.named_modules():
        layer_type = type(layer) if isinstance(layer, Perturbed) else _LAYERS.get(type(layer))
        if layer_type is None:
            continue
        choice = Choice(layer, label, layer_type)
        layers.append(choice)
        plan = layer.plan if isinstance(layer, Perturbed) else None
        for name in layer_type.perturbable(layer):
            parameter = attrgetter(name)(layer)
            known.setdefault(id(parameter), []).append((choice, name))
            if plan and name in plan.distributions:
                taken.add(id(parameter))
                extra.update(id(attrgetter(own)(layer)) for own in layer.learned_names(name))  # pyright: ignore
            elif name in layer_type.default:
                default.add(id(parameter))

    if where is None:
        chosen = default - taken
        _refuse_parametrised(model, lambda name: True)
    else:
        match = matcher(where)
        _refuse_parametrised(model, match)
        chosen = {key for key, names in aliases.items() if key not in extra and any(match(name) for name in names)}
        _check_patterns(where, [name for names in aliases.values() for name in names])
    if not chosen:
        raise UnknownParameter(
            f"{type(model).__name__}: where={where!r} leaves nothing to perturb. Its Parameters are "
            f"{_some(name for names in aliases.values() for name in names)}; known layers are "
            f"{_some(torch_type.__name__ for torch_type in _LAYERS)}."
        )
    for key in chosen:
        name = aliases[key][0]
        if len(known.get(key, [])) < len(aliases[key]):
            lost = sorted(set(aliases[key]) - {f"{c.label}.{n}".lstrip(".") for c, n in known.get(key, [])})
            owner = type(model.get_submodule(lost[0].rpartition(".")[0])).__name__
            raise UnknownParameter(
                f"where={where!r} names {lost[0]} of a {owner}, which no known layer type perturbs. "
                f"Exclude it in `where`, or add the layer with flipout.register({owner}, …)."
            )
        if key in taken:
            raise AlreadyPerturbed(
                f"{name} is perturbed already. flipout.freeze(model) first, or exclude it in `where`."
            )
        for choice, local in known[key]:
            choice.parameters.append(local)
    converted = [choice for choice in layers if choice.parameters]
    for choice in converted:
        choice.layer_type.check_options(choice.layer, choice.label or type(choice.layer).__name__)
        for name in choice.parameters:
            if isinstance(attrgetter(name)(choice.layer), nn.parameter.UninitializedParameter):
                raise Unsupported(
                    f"{choice.label}.{name} has no shape yet (a lazy module). Run one batch through it first."
                )
    return converted


def _refuse_parametrised(model: nn.Module, match: Callable[[str], bool]) -> None:
    for label, layer in model.named_modules():
        bases = [base for base in type(layer).__mro__ if base in _LAYERS]
        if not bases or isinstance(layer, Perturbed):
            continue
        layer_type = _LAYERS[bases[0]]
        for name in layer_type.default + layer_type.optional:
            owner, _, local = name.rpartition(".")
            module = layer.get_submodule(owner)
            computed = parametrize.is_parametrized(module, local) or (
                own_parameter(layer, name) is None and isinstance(getattr(module, local, None), torch.Tensor)
            )
            full = f"{label}.{name}".lstrip(".")
            if computed and name in layer_type.default and match(full):
                raise Unsupported(
                    f"{full} is parametrised (weight_norm, spectral_norm or the like): computed, not a Parameter. "
                    "Remove the parametrisation first (torch.nn.utils.parametrize.remove_parametrizations), or leave "
                    "the layer out with `where`."
                )


def _check_patterns(where: Where, names: list[str]) -> None:
    if not callable(where):
        for pattern in [where] if isinstance(where, str) else where:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise UnknownParameter(f"where: {pattern!r} matches no Parameter. There are {_some(names)}.")


def refuse_reuse(choices: list[Choice]) -> None:
    users: dict[int, str] = {}
    for choice in choices:
        for name in choice.parameters:
            key, full = id(attrgetter(name)(choice.layer)), f"{choice.label}.{name}"
            if key in users:
                raise WeightReused(
                    f"{users[key]} and {full} are one Parameter: local reparameterisation would sample it in each "
                    "layer separately, which is never one weight per example. Use scheme='flipout'."
                )
            users[key] = full


def _some(names: Iterable[str], most: int = 12) -> str:
    listed = list(names)
    return ", ".join(listed[:most]) + (f", … ({len(listed)} in all)" if len(listed) > most else "")
