"""perturb(model, …): torch layers become perturbed ones, in place, all or none; freeze gives them back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.utils import parametrize

from . import nn as perturbed
from .distributions import Distribution, LearnedDistribution
from .errors import AlreadyPerturbed, InvalidArgument, UnknownParameter, Unsupported, WeightReused
from .nn.base import Perturbed, Plan, Where, matcher, own_parameter
from .nn.contexts import held_draw, keys_in, parameter_names, perturbed_layers, weights_of
from .nn.root import Root
from .schemes import LocalReparam, Scheme, scheme_of

M = TypeVar("M", bound=nn.Module)

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
class _Choice:
    """What happens to one layer."""

    layer: nn.Module
    label: str
    layer_type: type[Perturbed]
    parameters: list[str] = field(default_factory=list)


def perturb(
    model: M,
    distribution: Distribution | None = None,
    *,
    scheme: str | Scheme = "flipout",
    where: Where | None = None,
    batch_dim: int | Mapping[str, int] | None = None,
    share_base: bool = False,
    process_group: Any = None,
) -> M:
    """Give the model's weights noise, in place, and make the model their root; returns the model.

    `where` (a glob, several, or a predicate over Parameter names) picks the Parameters; by default every weight matrix
    and convolution kernel of the layers it knows. `batch_dim` is the example's dimension where it is not 0, for all
    layers or by layer glob. Without a distribution nothing is converted: the model becomes the root of the layers
    that were made by hand. Under data parallelism every rank has its own base unless `share_base`.
    """
    if distribution is not None and not isinstance(distribution, Distribution):
        raise InvalidArgument(f"distribution={distribution!r}: expected a Distribution, such as flipout.Gaussian(0.1).")
    chosen_scheme = scheme_of(scheme)
    choices = [] if distribution is None else _choose(model, where)
    first_names = parameter_names(model)
    if isinstance(chosen_scheme, LocalReparam):
        _refuse_reuse(choices)

    # Everything that can fail, or takes memory, before anything changes.
    root = _root_of(model) or Root()
    learned: dict[int, dict[str, nn.Parameter]] = {}
    plans: list[tuple[_Choice, Plan]] = []
    for choice in choices:
        assert distribution is not None
        own = {}
        for name in choice.parameters:
            parameter = attrgetter(name)(choice.layer)
            own[name] = distribution.named(first_names[id(parameter)])
            if isinstance(own[name], LearnedDistribution) and id(parameter) not in learned:
                initial = own[name].initial(parameter)
                learned[id(parameter)] = {suffix: nn.Parameter(value) for suffix, value in initial.items()}
        choice.layer_type.check_scheme(chosen_scheme, own, choice.label)
        dim = _batch_dim(model, choice.label, batch_dim)
        plans.append((choice, Plan(own, chosen_scheme, {}, choice.label, batch_dim=dim)))

    for choice, plan in plans:
        _convert(choice, plan, learned)
    root.share_base, root.process_group = share_base, process_group
    _adopt(model, root, first_names)
    return model


def _choose(model: nn.Module, where: Where | None) -> list[_Choice]:
    """The layers to convert and the Parameters of each; a Parameter that is chosen is chosen wherever it is used."""
    layers: list[_Choice] = []
    aliases: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(name)
    known: dict[int, list[tuple[_Choice, str]]] = {}
    default: set[int] = set()
    extra: set[int] = set()  # learned Parameters of earlier conversions
    taken: set[int] = set()
    for label, layer in model.named_modules():
        layer_type = type(layer) if isinstance(layer, Perturbed) else _LAYERS.get(type(layer))
        if layer_type is None:
            continue
        choice = _Choice(layer, label, layer_type)
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
                f"where={where!r} names {lost[0]} of a {owner}, which no known layer type perturbs. Exclude it in `where`, "
                f"or add the layer with flipout.register({owner}, …)."
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


def _refuse_parametrised(model: nn.Module, match: Any) -> None:
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
                    f"{full} is parametrised (weight_norm, spectral_norm or the like): it is computed, not a Parameter. "
                    "Remove the parametrisation first (torch.nn.utils.parametrize.remove_parametrizations), or leave the "
                    "layer out with `where`."
                )


def _check_patterns(where: Where, names: list[str]) -> None:
    if not callable(where):
        for pattern in [where] if isinstance(where, str) else where:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise UnknownParameter(f"where: {pattern!r} matches no Parameter. There are {_some(names)}.")


def _refuse_reuse(choices: list[_Choice]) -> None:
    users: dict[int, str] = {}
    for choice in choices:
        for name in choice.parameters:
            key, full = id(attrgetter(name)(choice.layer)), f"{choice.label}.{name}"
            if key in users:
                raise WeightReused(
                    f"{users[key]} and {full} are one Parameter: local reparameterisation would sample it in each layer "
                    "separately, which is never one weight per example. Use scheme='flipout'."
                )
            users[key] = full


def _batch_dim(model: nn.Module, label: str, given: int | Mapping[str, int] | None) -> int:
    """The example's dimension of a layer: as given, else as the transformer around it has it, else 0."""
    if isinstance(given, Mapping):
        for pattern, dim in given.items():
            if fnmatchcase(label, pattern):
                return dim
    elif given is not None:
        if not isinstance(given, int) or given < 0:
            raise InvalidArgument(f"batch_dim={given!r}: expected a dimension ≥ 0, or {{layer glob: dimension}}.")
        return given
    parts = label.split(".")
    for depth in range(len(parts) - 1, -1, -1):
        parent = model.get_submodule(".".join(parts[:depth]))
        attention = next((m for m in parent.modules() if isinstance(m, nn.MultiheadAttention)), None)
        if isinstance(parent, _TRANSFORMERS) and attention is not None:
            return 0 if attention.batch_first else 1
    return 0


_TRANSFORMERS = (
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)


def _convert(choice: _Choice, plan: Plan, learned: dict[int, dict[str, nn.Parameter]]) -> None:
    layer: Any = choice.layer
    if isinstance(layer, Perturbed):
        layer.plan.distributions.update(plan.distributions)
    else:
        layer.__class__ = choice.layer_type
        layer.set_plan(plan)
    for name in choice.parameters:
        own = learned.get(id(attrgetter(name)(layer)))
        if own is not None:
            layer.learn(name, own)


def _root_of(model: nn.Module) -> Root | None:
    owners = (getattr(hook, "__self__", None) for hook in model._forward_pre_hooks.values())
    return next((owner for owner in owners if isinstance(owner, Root)), None)


def _adopt(model: nn.Module, root: Root, first_names: dict[int, str]) -> None:
    """Make the model the one root of every perturbed layer inside."""
    layers = perturbed_layers(model)
    quiet: dict[int, int] = {}
    for label, layer in layers.items():
        plan: Plan = layer.plan
        for module in model.modules():
            if plan.root is not root:
                plan.root.detach(module)
        plan.root, plan.rooted, plan.label = root, True, label
        plan.keys = keys_in(first_names, layer)
        padding = getattr(layer, "padding_idx", None)
        if padding is not None and "weight" in plan.distributions:
            quiet[id(layer.weight)] = padding
    for layer in layers.values():
        for name in layer.plan.distributions:
            row = quiet.get(id(attrgetter(name)(layer)))
            if row is not None:
                layer.plan.quiet_rows[name] = row
    if _root_of(model) is None:
        root.attach(model)


def freeze(model: M, *, at: str = "mean", example: int = 0) -> M:
    """Plain torch modules again, in place: at the mean, or, inside of `hold`, at the draw that example `example` sees."""
    if at not in ("mean", "draw"):
        raise InvalidArgument(f"freeze(at={at!r}): expected 'mean' or 'draw'.")
    layers = perturbed_layers(model)
    drawn: list[tuple[nn.Parameter, torch.Tensor]] = []
    if at == "draw":
        with torch.no_grad():
            for layer in layers.values():
                seen = weights_of(layer, *held_draw(layer), example)
                drawn += [(attrgetter(name)(layer), weight.squeeze(0)) for name, weight in seen.items()]
    for parameter, weight in drawn:
        parameter.data.copy_(weight)
    for root in {layer.plan.root for layer in layers.values()}:
        for module in model.modules():
            root.detach(module)
    for layer in layers.values():
        for name in layer.plan.learned:
            owner, _, _ = name.rpartition(".")
            for own in layer.learned_names(name):
                delattr(layer.get_submodule(owner), own.rpartition(".")[2])
        del layer.plan
        layer.__class__ = layer.torch_type
    return model


def _some(names: Any, most: int = 12) -> str:
    listed = list(names)
    return ", ".join(listed[:most]) + (f", … ({len(listed)} in all)" if len(listed) > most else "")
