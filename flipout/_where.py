"""Which Parameters `perturb` chooses: the layer types that it knows, and what it refuses."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import attrgetter

import torch
from torch import nn
from torch.nn.utils import parametrize

from . import nn as perturbed
from ._reprs import first_few
from .errors import AlreadyPerturbed, InvalidArgument, UnknownParameter, Unsupported
from .nn.base import Perturbed
from .nn.checks import Where, matcher, patterns
from .nn.companions import companion_names
from .nn.declaration import check_options, is_default, perturbable
from .nn.derived import ByReads
from .nn.kinds import check_free_names, kind_of
from .nn.layers import own_parameter

_LAYERS: dict[type[nn.Module], type[Perturbed]] = {layer._plain_type: layer for layer in perturbed.LAYERS}


def register(torch_type: type[nn.Module], layer_type: type[Perturbed]) -> None:
    """Let `perturb` turn modules of a type into a perturbed layer of your own.

    Args:
        torch_type: The type of the plain modules. Classes that derive from it are converted too.
        layer_type: A subclass of `flipout.nn.Perturbed` and of `torch_type`, in this order, with a `forward` of its
            own. Conversion keeps the object and changes its class.

    Raises:
        InvalidArgument: `layer_type` is no such class.

    Example:
        ```python
        flipout.register(Gain, PerturbedGain)
        ```
    """
    line = layer_type.__mro__
    in_order = Perturbed in line and torch_type in line and line.index(Perturbed) < line.index(torch_type)
    if in_order and layer_type.forward is torch_type.forward:
        raise InvalidArgument(
            f"register({torch_type.__name__}, {layer_type.__name__}): {layer_type.__name__} has no forward of its own, "
            "so nothing would be perturbed. Define one that asks flipout.nn.perturbations(self, …) for its weights."
        )
    if not in_order:
        raise InvalidArgument(
            f"register({torch_type.__name__}, {layer_type.__name__}): the layer has to subclass both "
            f"flipout.nn.Perturbed and {torch_type.__name__}, in this order, since conversion keeps the object."
        )
    declared = layer_type._declared
    if not (declared.default or declared.optional):
        raise InvalidArgument(
            f"register({torch_type.__name__}, {layer_type.__name__}): the layer names no Parameter that can be "
            f"perturbed. Name them as class arguments: class {layer_type.__name__}(flipout.nn.Perturbed, "
            f"{torch_type.__name__}, "
            'default=("weight",)).'
        )
    _LAYERS[torch_type] = layer_type


@dataclass
class Choice:
    """A layer to convert, and the Parameters of it that get noise."""

    layer: nn.Module
    label: str
    layer_type: type[Perturbed]
    parameters: list[str] = field(default_factory=list)


def choose(model: nn.Module, where: Where | None) -> list[Choice]:
    """Return the layers to convert. A Parameter that is chosen is chosen in every module that has it.

    Args:
        model: The model.
        where: Globs or a predicate over Parameter names; None for the weights of known layers.
    """
    if where is not None and not callable(where):
        where = patterns(where)
    aliases: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(name)
    known = _known(model)
    _refuse_computed(model, where)
    if where is None:
        chosen = known.default - known.taken
    else:
        match = matcher(where)
        chosen = {key for key, names in aliases.items() if key not in known.extra and any(match(n) for n in names)}
        _check_patterns(where, [name for names in aliases.values() for name in names])
    if not chosen:
        raise _nothing_chosen(model, where, known, aliases)
    for key in sorted(chosen, key=lambda key: aliases[key][0]):
        lost = [name for name in aliases[key] if name not in known.names]
        if lost:
            owner = type(model.get_submodule(lost[0].rpartition(".")[0])).__name__
            raise UnknownParameter(
                f"where={where!r} names {lost[0]} of a {owner}, which no known layer type perturbs. "
                f"Exclude it in `where`, or add the layer with flipout.register({owner}, …)."
            )
        if key in known.taken:
            raise AlreadyPerturbed(
                f"{aliases[key][0]} is perturbed already. flipout.freeze(model) first, or exclude it in `where`."
            )
        for choice, local in known.users[key]:
            choice.parameters.append(local)
    converted = [choice for choice in known.layers if choice.parameters]
    for choice in converted:
        label = choice.label or type(choice.layer).__name__
        check_options(choice.layer_type, choice.layer, label)
        check_free_names(choice.layer, choice.layer_type, label)
    return converted


def _nothing_chosen(
    model: nn.Module, where: Where | None, known: "_Known", aliases: dict[int, list[str]]
) -> AlreadyPerturbed | UnknownParameter:
    if where is None and known.taken:
        return AlreadyPerturbed(
            f"{type(model).__name__}: every weight that perturb chooses by default is perturbed already. "
            "flipout.freeze(model) first, or name other Parameters with `where`."
        )
    all_names = [name for names in aliases.values() for name in names]
    if where is None and known.users:
        listed = [choice for choice in known.layers if not issubclass(choice.layer_type, ByReads)]
        of_known = {f"{c.label}.{name}".lstrip(".") for c in listed for name in perturbable(c.layer_type, c.layer)}
        named = _named(sorted(of_known or known.names), all_names)
        return UnknownParameter(
            f"{type(model).__name__}: perturb finds nothing to perturb by default. It chooses the weights of known "
            f"layers ({first_few((torch_type.__name__ for torch_type in _LAYERS), 30)}); embeddings, norms, biases and "
            "modules of other types are perturbed where they are named. Name them: "
            f"flipout.perturb(model, distribution, where={named})."
        )
    chose = "perturb finds" if where is None else f"where={where!r} leaves"
    return UnknownParameter(
        f"{type(model).__name__}: {chose} nothing to perturb. Its Parameters are [{first_few(all_names, 12)}]."
    )


@dataclass
class _Known:
    """What can be perturbed in a model. Parameters are identified by their id."""

    layers: list[Choice] = field(default_factory=list)
    users: dict[int, list[tuple[Choice, str]]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)  # all names, also of layers that occur twice
    default: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)  # perturbed already
    extra: set[int] = field(default_factory=set)  # learned by distributions of earlier conversions


def _known(model: nn.Module) -> _Known:
    known, seen, parts = _Known(), set(), set()
    for label, layer in model.named_modules(remove_duplicate=False):
        if layer in parts:
            continue  # a part of a layer above, which perturbs its Parameters
        layer_type = type(layer) if isinstance(layer, Perturbed) else kind_of(layer, _LAYERS)
        if layer_type is None:
            continue
        names = perturbable(layer_type, layer)
        known.names.update(f"{label}.{name}".lstrip(".") for name in names)
        if layer in seen:
            continue
        seen.add(layer)
        parts.update(layer.get_submodule(name.rpartition(".")[0]) for name in names if "." in name)
        choice = Choice(layer, label, layer_type)
        known.layers.append(choice)
        for name in names:
            parameter = attrgetter(name)(layer)
            known.users.setdefault(id(parameter), []).append((choice, name))
            if isinstance(layer, Perturbed) and name in layer.flipout.distributions:
                known.taken.add(id(parameter))
                known.extra.update(id(attrgetter(learned)(layer)) for learned in companion_names(layer, name))
            elif is_default(layer_type, name):
                known.default.add(id(parameter))
    return known


def _refuse_computed(model: nn.Module, where: Where | None) -> None:
    """Refuse chosen weights that are not Parameters: parametrised ones, and those of lazy modules that did not run."""
    match = (lambda name: True) if where is None else matcher(where)
    for label, layer in model.named_modules():
        bases = [base for base in type(layer).__mro__ if base in _LAYERS]
        if not bases or isinstance(layer, Perturbed):
            continue
        layer_type = _LAYERS[bases[0]]
        wanted = (
            layer_type._declared.default
            if where is None
            else layer_type._declared.default + layer_type._declared.optional
        )
        for name in (n for n in _attributes(layer) if any(re.fullmatch(pattern, n) for pattern in wanted)):
            owner, _, local = name.rpartition(".")
            module, parameter, full = (
                layer.get_submodule(owner),
                own_parameter(layer, name),
                f"{label}.{name}".lstrip("."),
            )
            if not match(full):
                continue
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise Unsupported(f"{full} has no shape yet (a lazy module). Run one batch through the model first.")
            if parametrize.is_parametrized(module, local) or (
                parameter is None and isinstance(getattr(module, local, None), torch.Tensor)
            ):
                raise Unsupported(
                    f"{full} is parametrised (weight_norm, spectral_norm or the like): computed, not a Parameter. "
                    "Remove the parametrisation first (torch.nn.utils.parametrize.remove_parametrizations), or leave "
                    "the layer out with `where`."
                )


def _attributes(layer: nn.Module) -> Iterator[str]:
    """Yield the names of a layer's Parameters, and of attributes that may have replaced one."""
    for label, module in layer.named_modules():
        if label.partition(".")[0] != "parametrizations":
            computed = getattr(module, "parametrizations", {})
            yield from (f"{label}.{name}".lstrip(".") for name in {**module._parameters, **vars(module), **computed})


def _check_patterns(where: Where, names: list[str]) -> None:
    """Refuse a glob that matches no Parameter."""
    if not callable(where):
        for pattern in where:
            if not any(fnmatchcase(name, pattern) for name in names):
                is_layer = any(name.startswith(f"{pattern}.") for name in names)
                fix = f" {pattern!r} is a layer: write where={f'{pattern}.*'!r}." if is_layer else ""
                raise UnknownParameter(
                    f"where: {pattern!r} matches no Parameter.{fix} There are {first_few(names, 12)}."
                )


def _named(known: list[str], names: list[str]) -> str:
    """Return the `where`, as code, that chooses the weights among these names, or the biases if there are none."""
    weights = [name for name in known if name.endswith("weight")] or known
    glob = f"*.{weights[0].rpartition('.')[2]}"
    chosen = [name for name in names if fnmatchcase(name, glob)]
    return repr(weights[0] if not weights[1:] else glob if set(weights) <= set(chosen) <= set(known) else weights)
