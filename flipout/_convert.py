"""`perturb(model, …)`: layers become perturbed ones, in place, all or none."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, TypeVar

from torch import Tensor, nn

from ._by_glob import Schemes, checked_batch_dim, requested_dim
from ._examples import ShownLayer, find_examples, tell_layers
from ._left import warn_of_left
from ._refused_models import refuse_late_ties, refuse_offloaded, refuse_wrapped
from ._shards import refuse_shards
from ._where import Choice, choose
from .distributions import Distribution, LearnedDistribution
from .errors import InvalidArgument, Unsupported
from .nn.base import Perturbed, set_plan
from .nn.checks import Where, check_distribution, check_fit, check_module
from .nn.companions import companion_values, learn
from .nn.declaration import check_scheme
from .nn.models import parameter_names, perturbed_layers, refuse_reuse
from .nn.plan import Plan
from .nn.root import Root
from .nn.rooting import make_root, roots_on
from .nn.structure import follow_all
from .nn.transformer_layout import takes_sequences, transformer_batch_dim
from .nn.wrapped_forward import check_forward, rebind_forward
from .schemes import Scheme, SchemeName

M = TypeVar("M", bound=nn.Module)
Requested = SchemeName | Scheme | Mapping[str, SchemeName | Scheme]  # one scheme, or one for each glob


def perturb(
    model: M,
    distribution: Distribution | None = None,
    *,
    scheme: SchemeName | Scheme | Mapping[str, SchemeName | Scheme] | None = None,
    where: Where | None = None,
    batch_dim: int | Mapping[str, int] | None = None,
    example_inputs: Any = None,
    share_base: bool | None = None,
    process_group: Any = None,
) -> M:
    """Give the weights of a model noise, in place, and make the model the root that takes their draws.

    Without a distribution nothing is converted: the model becomes the root of perturbed layers that were made by hand.

    Args:
        model: Any `nn.Module`.
        distribution: The noise.
        scheme: Who in the batch shares the noise, `"flipout"` by default; or a scheme for each glob over Parameter
            names. The first glob that matches is used: `{"*experts*": "shared", "*": "flipout"}`.
        where: The Parameters to perturb: a glob, several globs, or a predicate over Parameter names. By default the
            weight matrices and convolution kernels of known layers. Parameters of any other module can be named too.
        batch_dim: The example's dimension where it is not 0. A number holds for the model's inputs and for all layers,
            and a layer that sees another number of rows than the inputs is refused. A dimension given for a glob of
            layers is taken without that check. With `example_inputs`, a number holds for these inputs alone.
        example_inputs: A batch of two or more examples (a tensor, a tuple of arguments or a dict of keyword arguments)
            that shows where each layer's input has its examples. Windows, tokens and time steps that are folded into
            the rows are then followed instead of refused. The model runs at most nine times, plain and in eval mode.
        share_base: Under data parallelism, one base for all ranks instead of one for each. Unless given, what an
            earlier call gave stays.
        process_group: The ranks that split a batch. Unless given, what an earlier call gave stays.

    Returns:
        The model itself.

    Raises:
        InvalidArgument: An argument is outside of what it may be.
        UnknownParameter: `where` names nothing, or something that cannot be perturbed.
        AlreadyPerturbed: `where` names a Parameter that is perturbed already.
        Unsupported: A layer has an option or a parametrisation under which it cannot be perturbed.

    Warns:
        LeftPlain: Without `where`, weights of unknown types stay plain.

    Example:
        ```python
        model = flipout.perturb(model, flipout.MultiplicativeGaussian(std=1.0))
        ```
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
        refuse_wrapped(model, distribution)
        refuse_offloaded(model, distribution)
    made_before = [(label, layer) for label, layer in model.named_modules() if isinstance(layer, Perturbed)]
    follow_all(model.modules(), [layer for _, layer in made_before])
    batch_dim = checked_batch_dim(model, batch_dim)
    # A batch shows the layers' dimensions; a number then says only where the batch itself has its examples.
    layer_dims = None if example_inputs is not None and isinstance(batch_dim, int) else batch_dim
    choices = [] if distribution is None else choose(model, where)
    refuse_late_ties(model, choices)
    first_names = parameter_names(model)
    scheme_for = Schemes("flipout" if scheme is None else scheme, first_names)
    planned = [(choice.label, choice.layer, choice.parameters, scheme_for(choice)) for choice in choices]
    scheme_for.check_patterns()
    before = ((label, layer, layer.flipout.distributions, layer.flipout.scheme) for label, layer in made_before)
    refuse_reuse([*planned, *before])

    # Everything that can fail, or takes memory, before anything changes.
    learned: dict[int, dict[str, Tensor]] = {}
    plans: list[tuple[Choice, Plan]] = []
    for choice, (_, _, _, chosen_scheme) in zip(choices, planned, strict=True):
        assert distribution is not None
        distributions = {}
        for name in choice.parameters:
            parameter = attrgetter(name)(choice.layer)
            distributions[name] = distribution.named(first_names[id(parameter)])
            check_fit(distributions[name], parameter, f"{choice.label}.{name}".lstrip("."))
            if isinstance(distributions[name], LearnedDistribution) and id(parameter) not in learned:
                learned[id(parameter)] = companion_values(distributions[name], parameter)
                _check_free_names(choice, name, learned[id(parameter)])
        check_scheme(choice.layer_type, chosen_scheme, distributions, choice.label or choice.layer_type.__name__)
        check_forward(choice.layer, choice.layer_type, choice.label or choice.layer_type.__name__)
        dim = requested_dim(choice.layer_type, choice.label, layer_dims)
        _check_agreement(choice, chosen_scheme, dim)
        is_told = dim is not None and isinstance(layer_dims, Mapping)
        plan = Plan(distributions, chosen_scheme, [(Root(), {})], choice.label, batch_dim=dim, is_told=is_told)
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
            requested_dim(type(layer), label, layer_dims),
            transformer_batch_dim(model, label),
            takes_sequences(model, label),
        )
        for label, layer in made_before
        if not layer.flipout.is_rooted
    ]
    shown = None
    if example_inputs is not None:
        candidates = {c.label: ShownLayer(c.layer, c.layer_type, plan.batch_dim, c.parameters) for c, plan in plans}
        before_now = {
            label: ShownLayer(layer, type(layer), layer.flipout.batch_dim, list(layer.flipout.distributions))
            for label, layer in made_before
        }
        dim = batch_dim if isinstance(batch_dim, int) else None
        shown = find_examples(model, before_now | candidates, example_inputs, dim)
    for choice, plan in plans:
        _convert_module(choice, plan, learned)
    for plan, dim, follows, sequences in by_hand:
        plan.batch_dim, plan.inherited_batch_dim, plan.takes_sequences = dim, follows, sequences
        plan.is_told = dim is not None and isinstance(layer_dims, Mapping)
    make_root(model, first_names, share_base, process_group)
    perturbed = {label: layer for label, layer in model.named_modules() if isinstance(layer, Perturbed)}
    for root in roots_on(model):
        root.structure.remember_layers(perturbed)
    if shown is not None:
        tell_layers(model, perturbed_layers(model), shown)
    if distribution is not None and where is None:
        warn_of_left(model)
    return model


def _check_patterns(distribution: Distribution, names: Sequence[str]) -> None:
    """Refuse a glob of a distribution that matches no Parameter of the model, which is probably a typo."""
    for field, value in vars(distribution).items():
        for pattern in value if isinstance(value, Mapping) else ():
            if not any(fnmatchcase(name, pattern) for name in names):
                raise InvalidArgument(
                    f"{type(distribution).__name__}({field}={{…}}): {pattern!r} matches none of the model's "
                    f"Parameters, {', '.join(names[:5])}{', …' if names[5:] else ''}."
                )


def _check_free_names(choice: Choice, name: str, learned: Iterable[str]) -> None:
    """Refuse a layer that has an attribute where a learned distribution would put its Parameter."""
    owner, _, local = name.rpartition(".")
    for suffix in learned:
        if hasattr(choice.layer.get_submodule(owner), f"{local}_{suffix}"):
            raise Unsupported(f"{choice.label}: the name {name}_{suffix}, of a learned distribution, is taken already.")


def _check_agreement(choice: Choice, scheme: Scheme, batch_dim: int | None) -> None:
    """Refuse another scheme, or another example's dimension, for a layer that is perturbed already."""
    if not isinstance(choice.layer, Perturbed):
        return
    plan = choice.layer.flipout
    if scheme != plan.scheme or batch_dim not in (None, plan.batch_dim):
        raise InvalidArgument(
            f"{choice.label}: scheme={scheme}, batch_dim={batch_dim} given, but the layer is perturbed already, with "
            f"scheme={plan.scheme}, batch_dim={plan.batch_dim}, and a layer has one of each. Give the same, or perturb "
            "all its Parameters in one call."
        )


def _convert_module(choice: Choice, plan: Plan, learned: dict[int, dict[str, Tensor]]) -> None:
    """Give a layer its perturbed class, its noise, and what its distributions learn."""
    layer: Any = choice.layer
    if isinstance(layer, Perturbed):
        layer.flipout.distributions.update(plan.distributions)
    else:
        before = type(layer)
        layer.__class__ = choice.layer_type
        rebind_forward(layer, before)
        set_plan(layer, plan)
    for name in choice.parameters:
        values_beside = learned.get(id(attrgetter(name)(layer)))
        if values_beside is not None:
            learn(layer, name, values_beside)
