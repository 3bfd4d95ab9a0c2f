"""perturb(model, …): torch layers become perturbed ones, in place, all or none."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, TypeVar

from torch import nn

from .distributions import Distribution, LearnedDistribution
from .errors import InvalidArgument
from .nn.base import Perturbed, Plan, Where
from .nn.contexts import keys_in, parameter_names, perturbed_layers
from .nn.root import Root
from .schemes import LocalReparam, Scheme, scheme_of
from .where import Choice, choose, refuse_reuse

M = TypeVar("M", bound=nn.Module)


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
    choices = [] if distribution is None else choose(model, where)
    first_names = parameter_names(model)
    if isinstance(chosen_scheme, LocalReparam):
        refuse_reuse(choices)

    # Everything that can fail, or takes memory, before anything changes.
    root = _root_of(model) or Root()
    learned: dict[int, dict[str, nn.Parameter]] = {}
    plans: list[tuple[Choice, Plan]] = []
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


def _convert(choice: Choice, plan: Plan, learned: dict[int, dict[str, nn.Parameter]]) -> None:
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
