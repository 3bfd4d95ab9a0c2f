"""Contexts that choose the draw and the scheme: `hold`, `sampling` and `using`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from ..draws.draw import from_seed
from ..draws.passes import Pass
from ..schemes import Scheme, SchemeName, scheme_of
from .base import Perturbed
from .declaration import check_scheme
from .models import layer_keys, parameter_names, perturbed_layers, refuse_reuse
from .plan import Keys, Plan
from .root import Root
from .roster import LayerRoster, roster_of
from .spans import Span, open_span


@contextmanager
def hold(
    model: nn.Module,
    seed: int | Tensor | None = None,
    *,
    sign_seed: int | Tensor | None = None,
    first: int = 0,
    rows: int = 1,
    group: int | None = None,
    antithetic: bool = False,
) -> Iterator[None]:
    """Use one draw for every call inside, in training mode and in eval mode.

    Args:
        model: A model with perturbed layers.
        seed: A number, or a tensor of shape (). The same seed gives the same draw anywhere. Without it, the draw is
            fresh.
        sign_seed: Another seed for the signs alone, over the same base perturbations.
        first: Index of the first example of the batch, for a chunk or a rank that sees a part of one batch.
        rows: Number of consecutive rows that belong to one example.
        group: Number of examples that share one base perturbation ΔŴ, instead of the scheme's own.
        antithetic: Negate every perturbation.

    Raises:
        NotPerturbed: The model has no perturbed layers.
        InvalidArgument: An argument is not a whole number in its range.

    Example:
        >>> with flipout.hold(model, seed=7):
        ...     y1 = model(x)
        ...     y2 = model(x)  # equal to y1
    """
    layers = perturbed_layers(model)
    root, keys = _common_keys(model, layers.values())
    device = next(iter(model.parameters())).device
    fields = {"first": first, "rows": rows, "group": group, "antithetic": antithetic}
    if seed is None:
        draw = replace(root.take_draw(device), **fields)
        if sign_seed is not None:
            signs = from_seed(sign_seed, device=device)
            draw = replace(draw, sign_seed=signs.seed, fixed=signs.fixed)
    else:
        draw = from_seed(seed, sign_seed, device, **fields)
    session = Pass(draw, _common_roster(model, root, layers, keys), root.process_group)
    with _open_context(list(keys), session=session, keys=keys):
        yield


def draw_and_mirror(model: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return two contexts like `hold`: one of a fresh draw, one of the same draw with every perturbation negated."""
    layers = perturbed_layers(model)
    root, keys = _common_keys(model, layers.values())
    draw, roster = root.take_draw(next(iter(model.parameters())).device), _common_roster(model, root, layers, keys)
    sessions = (Pass(replace(draw, antithetic=image), roster, root.process_group) for image in (False, True))
    first, mirror = (_open_context(list(keys), session=session, keys=keys) for session in sessions)
    return first, mirror


@contextmanager
def sampling(model: nn.Module) -> Iterator[None]:
    """Draw weights in eval mode too, fresh for each forward pass.

    BatchNorm and Dropout stay in eval mode: only the weights vary.

    Args:
        model: A model with perturbed layers.

    Raises:
        NotPerturbed: The model has no perturbed layers.

    Example:
        >>> model.eval()
        >>> with flipout.sampling(model):
        ...     samples = [model(x) for _ in range(10)]
    """
    with _open_context([layer.flipout for layer in perturbed_layers(model).values()]):
        yield


@contextmanager
def using(model: nn.Module, *, scheme: SchemeName | Scheme) -> Iterator[None]:
    """Use another scheme with the same weights and the same distributions.

    Args:
        model: A model with perturbed layers.
        scheme: The scheme for all of its layers, such as "shared".

    Raises:
        NotPerturbed: The model has no perturbed layers.
        InvalidArgument: There is no such scheme.
        AsymmetricDistribution: The scheme needs a distribution that is symmetric about 0.
        WeightReused: Local reparameterisation of a weight that several layers use.
        Unsupported: The scheme cannot serve one of the layers.

    Example:
        >>> with flipout.hold(model, seed=7), flipout.using(model, scheme="shared"):
        ...     y = model(x)
    """
    layers = perturbed_layers(model)
    with _open_context([layer.flipout for layer in layers.values()], scheme=_checked_scheme(scheme, layers)):
        yield


@contextmanager
def drawing(
    model: nn.Module, layers: dict[str, Perturbed], seed: int | Tensor, scheme: SchemeName | Scheme
) -> Iterator[Callable[..., Pass]]:
    """`using` and `hold` in one, for many draws after each other.

    Args:
        model: The model.
        layers: Its perturbed layers.
        seed: The seed of all draws.
        scheme: The scheme in place of the layers' own.

    Yields:
        A function that holds the next draw in place of the last one. Its arguments are fields of a `Draw`.
    """
    chosen = _checked_scheme(scheme, layers)
    root, keys = _common_keys(model, layers.values())
    seeded = from_seed(seed, device=next(iter(model.parameters())).device)
    roster = _common_roster(model, root, layers, keys)
    roots = dict.fromkeys(root for plan in keys for root, _ in plan.roots)
    span = Span(keys=keys, scheme=chosen, roots=tuple(roots))

    def hold_next(**fields: Any) -> Pass:
        if span.session is not None:
            span.session.close()
        span.session = Pass(replace(seeded, **fields), roster, root.process_group)
        return span.session

    with open_span(span):
        yield hold_next


def _checked_scheme(scheme: SchemeName | Scheme, layers: dict[str, Perturbed]) -> Scheme:
    """Return the scheme, or refuse it for one of the layers."""
    chosen = scheme_of(scheme)
    for name, layer in layers.items():
        check_scheme(type(layer), chosen, layer.flipout.distributions, layer.flipout.label or name)
    refuse_reuse((name, layer, layer.flipout.distributions, chosen) for name, layer in layers.items())
    return chosen


def _open_context(
    plans: list[Plan], keys: dict[Plan, Keys] | None = None, **fields: Any
) -> AbstractContextManager[None]:
    roots = dict.fromkeys(root for plan in plans for root, _ in plan.roots)
    return open_span(Span(keys=keys or {plan: {} for plan in plans}, roots=tuple(roots), **fields))


def _common_keys(model: nn.Module, layers: Iterable[Perturbed]) -> tuple[Root, dict[Plan, Keys]]:
    """Return the root that all layers have in common, and its keys. Without one, the model's own names are the keys.

    A part that was perturbed again inside a perturbed model is a root itself. Then its own root comes first: a call of
    the part draws under that one, and `hold` replays such a call.
    """
    plans = [layer.flipout for layer in layers]
    for root, _ in sorted(plans[0].roots, key=lambda rooted: not rooted[0].structure.is_of(model)):
        keys = {plan: keys for plan in plans if plan.is_rooted for other, keys in plan.roots if other is root}
        if len(keys) == len(plans):
            return root, keys
    names = parameter_names(model)
    return plans[0].roots[-1][0], {layer.flipout: layer_keys(names, layer) for layer in layers}


def _common_roster(model: nn.Module, root: Root, layers: dict[str, Perturbed], keys: dict[Plan, Keys]) -> LayerRoster:
    """Return the roster of the root if it has these layers and keys, else a new one."""
    known = root.roster
    if known is not None and known.lists(keys) and all((root, in_root) in plan.roots for plan, in_root in keys.items()):
        return known
    roster = roster_of(model, ((layer, keys[layer.flipout]) for layer in layers.values()))
    if root.structure.is_of(model):
        root.roster, roster.is_lasting = roster, True
    return roster
