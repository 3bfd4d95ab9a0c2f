"""perturb(model, …): torch layers become perturbed ones, in place, all or none."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, TypeVar

from torch import Tensor, nn

from ._arguments import whole_number
from ._shards import refuse_shards
from .distributions import Distribution, LearnedDistribution
from .errors import InvalidArgument, Unsupported
from .nn.base import Perturbed, set_plan
from .nn.checks import Where, check_distribution, check_fit, check_module
from .nn.companions import companion_values, learn
from .nn.declaration import check_scheme
from .nn.models import parameter_names, refuse_reuse
from .nn.plan import Plan
from .nn.root import Root
from .nn.rooting import make_root
from .nn.structure import follow_all
from .nn.transformer_layout import takes_sequences, transformer_batch_dim
from .schemes import Scheme, scheme_of
from .where import Choice, choose

M = TypeVar("M", bound=nn.Module)


def perturb(
    model: M,
    distribution: Distribution | None = None,
    *,
    scheme: str | Scheme | None = None,
    where: Where | None = None,
    batch_dim: int | Mapping[str, int] | None = None,
    share_base: bool | None = None,
    process_group: Any = None,
) -> M:
    """Give the model's weights noise, in place, and make the model their root; returns the model.

    `scheme` is 'flipout' unless another is named. `where` (a glob, several, or a predicate over Parameter names) picks
    the Parameters; by default every weight matrix and convolution kernel of the layers it knows. `batch_dim` is the
    example's dimension where it is not 0, for all layers or by layer glob. Without a distribution nothing is converted:
    the model becomes the root of the layers that were made by hand. Under data parallelism every rank has its own base
    unless `share_base`; both options keep what an earlier call gave them.
    """
    check_module(model)
    if distribution is not None:
        check_distribution(distribution)
    for name, value in (("where", where), ("scheme", scheme)):
        if distribution is None and value is not None:
            raise InvalidArgument(f"{name}={value!r} given without a distribution: say which noise, perturb(model, …).")
    if distribution is not None:
        refuse_shards(
            model, "perturb", "Perturb the model first, then shard it: a draw belongs to the whole Parameter."
        )
        _refuse_wrapped(model, distribution)
    made = [(label, layer) for label, layer in model.named_modules() if isinstance(layer, Perturbed)]
    follow_all(model, [layer for _, layer in made])
    chosen_scheme = scheme_of("flipout" if scheme is None else scheme)
    batch_dim = _batch_dim(model, batch_dim)
    choices = [] if distribution is None else choose(model, where)
    first_names = parameter_names(model)
    planned = [(choice.label, choice.layer, choice.parameters, chosen_scheme) for choice in choices]
    refuse_reuse(
        [*planned, *((label, layer, layer.flipout.distributions, layer.flipout.scheme) for label, layer in made)]
    )

    # Everything that can fail, or takes memory, before anything changes.
    learned: dict[int, dict[str, Tensor]] = {}
    plans: list[tuple[Choice, Plan]] = []
    for choice in choices:
        assert distribution is not None
        own = {}
        for name in choice.parameters:
            parameter = attrgetter(name)(choice.layer)
            own[name] = distribution.named(first_names[id(parameter)])
            check_fit(own[name], parameter, f"{choice.label}.{name}".lstrip("."))
            if isinstance(own[name], LearnedDistribution) and id(parameter) not in learned:
                learned[id(parameter)] = companion_values(own[name], parameter)
                _check_free_names(choice, name, learned[id(parameter)])
        check_scheme(choice.layer_type, chosen_scheme, own, choice.label or choice.layer_type.__name__)
        dim = _asked(choice.layer_type, choice.label, batch_dim)
        _check_agreement(choice, chosen_scheme, dim)
        plan = Plan(own, chosen_scheme, [(Root(), {})], choice.label, batch_dim=dim)
        plan.inherited_batch_dim, plan.takes_sequences = (
            transformer_batch_dim(model, choice.label),
            takes_sequences(model, choice.label),
        )
        plans.append((choice, plan))

    if distribution is not None:
        _check_patterns(distribution, list(first_names.values()))
    by_hand = [
        (
            layer.flipout,
            _asked(type(layer), label, batch_dim),
            transformer_batch_dim(model, label),
            takes_sequences(model, label),
        )
        for label, layer in made
        if not layer.flipout.is_rooted
    ]
    for choice, plan in plans:
        _convert(choice, plan, learned)
    for plan, dim, follows, sequences in by_hand:
        plan.batch_dim, plan.inherited_batch_dim, plan.takes_sequences = dim, follows, sequences
    make_root(model, first_names, share_base, process_group)
    return model


def _check_patterns(distribution: Distribution, names: Sequence[str]) -> None:
    """A glob that no Parameter of the model has is a slip."""
    for field, value in vars(distribution).items():
        for pattern in value if isinstance(value, Mapping) else ():
            if not any(fnmatchcase(name, pattern) for name in names):
                raise InvalidArgument(
                    f"{type(distribution).__name__}({field}={{…}}): {pattern!r} matches none of the model's "
                    f"Parameters, {', '.join(names[:5])}{', …' if names[5:] else ''}."
                )


def _check_free_names(choice: Choice, name: str, learned: Iterable[str]) -> None:
    owner, _, local = name.rpartition(".")
    for suffix in learned:
        if hasattr(choice.layer.get_submodule(owner), f"{local}_{suffix}"):
            raise Unsupported(f"{choice.label}: the name {name}_{suffix}, of a learned distribution, is taken already.")


def _check_agreement(choice: Choice, scheme: Scheme, batch_dim: int | None) -> None:
    """A layer that is perturbed already has its scheme and its example's dimension."""
    if not isinstance(choice.layer, Perturbed):
        return
    plan = choice.layer.flipout
    if scheme != plan.scheme or batch_dim not in (None, plan.batch_dim):
        raise InvalidArgument(
            f"{choice.label}: scheme={scheme}, batch_dim={batch_dim} given, but the layer is perturbed already, with "
            f"scheme={plan.scheme}, batch_dim={plan.batch_dim}, and a layer has one of each. Give the same, or perturb "
            "all its Parameters in one call."
        )


def _refuse_wrapped(model: nn.Module, distribution: Distribution) -> None:
    """DistributedDataParallel averages the gradients of the Parameters that it found when it was made."""
    parallel = any(isinstance(module, nn.parallel.DistributedDataParallel) for module in model.modules())
    if parallel and isinstance(distribution, LearnedDistribution):
        raise Unsupported(
            f"perturb(DistributedDataParallel(…), {type(distribution).__name__}(…)): the Parameters that it adds would "
            "not be synchronised, and differ from rank to rank. Perturb first, then wrap: "
            "DistributedDataParallel(flipout.perturb(model, …))."
        )


def _batch_dim(model: nn.Module, given: int | Mapping[str, int] | None) -> int | dict[str, int] | None:
    if given is None:
        return None
    labels = [label for label, _ in model.named_modules()]
    dims = dict(given) if isinstance(given, Mapping) else {"*": given}
    for pattern, dim in dims.items():
        if dim is not None:
            dims[pattern] = whole_number("batch_dim", dim, 0, means="a dimension", more=", or {layer glob: dimension}.")
        if not any(fnmatchcase(label, pattern) for label in labels):
            raise InvalidArgument(
                f"batch_dim={given!r}: {pattern!r} matches no layer of {type(model).__name__}, which has "
                f"{', '.join(map(repr, labels[1:6])) or 'none inside'}{', …' if labels[6:] else ''}."
            )
    return dims if isinstance(given, Mapping) else dims["*"]


def _asked(layer_type: type[Perturbed], label: str, given: int | Mapping[str, int] | None) -> int | None:
    """The example's dimension that was asked for a layer."""
    if not isinstance(given, Mapping):
        return given
    for pattern, dim in given.items():
        if fnmatchcase(label, pattern):
            if dim and layer_type._declared.fixed_layout:
                raise InvalidArgument(
                    f"batch_dim={dict(given)!r}: {pattern!r} names {label}, a {layer_type.__name__}, whose layout is "
                    f"{layer_type._declared.fixed_layout}. Leave it out."
                )
            return dim
    return None


def _convert(choice: Choice, plan: Plan, learned: dict[int, dict[str, Tensor]]) -> None:
    layer: Any = choice.layer
    if isinstance(layer, Perturbed):
        layer.flipout.distributions.update(plan.distributions)
    else:
        layer.__class__ = choice.layer_type
        set_plan(layer, plan)
    for name in choice.parameters:
        own = learned.get(id(attrgetter(name)(layer)))
        if own is not None:
            learn(layer, name, own)
