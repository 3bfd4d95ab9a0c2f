"""Contexts that choose the draw, and what is to be seen inside them."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from ..draws.draw import from_seed
from ..draws.passes import Pass
from ..errors import NoExampleWeights, NotPerturbed, Unsupported, WeightReused
from ..schemes import LocalReparam, Scheme, SchemeName, scheme_of
from .base import Perturbed
from .checks import check_module
from .declaration import check_scheme, perturbable, sign_groups
from .layers import label_of
from .parameters import Perturbations
from .plan import Keys, Plan, parameter_key
from .root import Root
from .roster import LayerRoster, roster_of
from .spans import Span, opened
from .structure import follow_all


def perturbed_layers(model: nn.Module, fix: str = "flipout.perturb(model, distribution)") -> dict[str, Perturbed]:
    check_module(model)
    layers = {name: module for name, module in model.named_modules() if isinstance(module, Perturbed)}
    if not layers:
        raise NotPerturbed(f"{type(model).__name__} has no perturbed layers. Convert it first: {fix}.")
    follow_all(model, layers.values())
    return layers


def parameter_names(model: nn.Module) -> dict[int, str]:
    """id of a Parameter → its first name."""
    return {id(parameter): name for name, parameter in model.named_parameters()}


def keys_in(model_names: dict[int, str], layer: Perturbed) -> Keys:
    """What a layer's signs are keyed by in a model whose Parameters have these names."""
    return {name: parameter_key(model_names[id(attrgetter(name)(layer))]) for name in layer.flipout.distributions}


def _keys_of_all(model: nn.Module, layers: Iterable[Perturbed]) -> tuple[Root, dict[Plan, Keys]]:
    """The root that all layers have in common, and its keys; else the model at hand stands in for one."""
    plans = [layer.flipout for layer in layers]
    for root, _ in plans[0].roots:
        keys = {plan: keys for plan in plans if plan.rooted for own, keys in plan.roots if own is root}
        if len(keys) == len(plans):
            return root, keys
    names = parameter_names(model)
    return plans[0].roots[-1][0], {layer.flipout: keys_in(names, layer) for layer in layers}


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
    """One draw for every call inside, in training and in eval mode. A seed is a number, or a tensor of shape ().

    With `seed` it can be replayed anywhere; `first` is the index of the batch's first example (chunks and ranks of one
    batch), `rows` the number of rows of an example, `group` the number of examples that share one ΔŴ (overriding the
    scheme's), and `antithetic` negates every perturbation. `sign_seed` draws other signs over the same base.
    """
    layers = perturbed_layers(model)
    root, keys = _keys_of_all(model, layers.values())
    device = next(iter(model.parameters())).device
    fields = {"first": first, "rows": rows, "group": group, "antithetic": antithetic}
    if seed is None:
        draw = replace(root.take(device), **fields)
        if sign_seed is not None:
            signs = from_seed(sign_seed, device=device)
            draw = replace(draw, sign_seed=signs.seed, fixed=signs.fixed)
    else:
        draw = from_seed(seed, sign_seed, device, **fields)
    session = Pass(draw, _roster(model, root, layers, keys), root.process_group)
    with _opened(list(keys), session=session, keys=keys):
        yield


def _roster(model: nn.Module, root: Root, layers: dict[str, Perturbed], keys: dict[Plan, Keys]) -> LayerRoster:
    """That of the root, where it has the same layers and keys."""
    known = root.roster
    if known is not None and known.lists(keys) and all((root, own) in plan.roots for plan, own in keys.items()):
        return known
    made = roster_of(model, ((layer, keys[layer.flipout]) for layer in layers.values()))
    if root.structure.module is not None and root.structure.module() is model:
        root.roster, made.is_lasting = made, True
    return made


@contextmanager
def sampling(model: nn.Module) -> Iterator[None]:
    """Draw in eval mode too: BatchNorm and Dropout stay as they are, only the weights vary."""
    with _opened([layer.flipout for layer in perturbed_layers(model).values()]):
        yield


@contextmanager
def using(model: nn.Module, *, scheme: SchemeName | Scheme) -> Iterator[None]:
    """The same weights and the same noise, shared in another way."""
    layers = perturbed_layers(model)
    with _opened([layer.flipout for layer in layers.values()], scheme=_checked_scheme(scheme, layers)):
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
    root, keys = _keys_of_all(model, layers.values())
    seeded = from_seed(seed, device=next(iter(model.parameters())).device)
    roster = _roster(model, root, layers, keys)
    roots = dict.fromkeys(root for plan in keys for root, _ in plan.roots)
    span = Span(keys=keys, scheme=chosen, roots=tuple(roots))

    def hold_next(**fields: Any) -> Pass:
        if span.session is not None:
            span.session.close()
        span.session = Pass(replace(seeded, **fields), roster, root.process_group)
        return span.session

    with opened(span):
        yield hold_next


def _checked_scheme(scheme: SchemeName | Scheme, layers: dict[str, Perturbed]) -> Scheme:
    """Return the scheme, or refuse it for one of the layers."""
    chosen = scheme_of(scheme)
    for name, layer in layers.items():
        check_scheme(type(layer), chosen, layer.flipout.distributions, layer.flipout.label or name)
    refuse_reuse((name, layer, layer.flipout.distributions, chosen) for name, layer in layers.items())
    return chosen


def _opened(plans: list[Plan], keys: dict[Plan, Keys] | None = None, **what: Any) -> AbstractContextManager[None]:
    roots = dict.fromkeys(root for plan in plans for root, _ in plan.roots)
    return opened(Span(keys=keys or {plan: {} for plan in plans}, roots=tuple(roots), **what))


def refuse_reuse(layers: Iterable[tuple[str, nn.Module, Iterable[str], Scheme]]) -> None:
    """Refuse local reparameterisation of a Parameter that several layers (label, layer, Parameters, scheme) use."""
    users: dict[int, tuple[str, bool]] = {}
    for label, layer, parameters, scheme in layers:
        for name in parameters:
            key, full, local = id(attrgetter(name)(layer)), f"{label}.{name}", isinstance(scheme, LocalReparam)
            if key in users and (local or users[key][1]):
                raise WeightReused(
                    f"{users[key][0]} and {full} are one Parameter: local reparameterisation would sample it in each "
                    "layer separately, which is never one weight per example. Use scheme='flipout'."
                )
            users[key] = full, local


_TURNED: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # models that `in_eval` changed → by which thread


@contextmanager
def in_eval(model: nn.Module) -> Iterator[None]:
    """In eval mode, each module put back afterwards.

    Raises:
        Unsupported: Another thread is inside, and would put the model back into training mode at any time.
    """
    thread = threading.get_ident()
    if _TURNED.get(model, thread) != thread:
        raise Unsupported(
            f"{type(model).__name__}: two threads want it in eval mode for a while, and the first one to end would put "
            "it back into training mode under the other. Call model.eval() before the threads start."
        )
    modes = [(module, module.training) for module in model.modules() if module.training]
    if not modes:
        yield
        return
    _TURNED[model] = thread
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        _TURNED.pop(model, None)


def held_pass(layer: Perturbed) -> tuple[Pass, Keys]:
    held = layer.flipout.held
    if held is None or held.session is None or held.keys is None:
        raise NoExampleWeights(
            f"{label_of(layer)}: no draw is held. Ask inside of `with flipout.hold(model):`, of "
            "that model itself: a copy holds none."
        )
    return held.session, held.keys[layer.flipout]


def counted(model: nn.Module) -> int | None:
    """How many examples the draw of the last forward pass had, or the held one; None where nobody counted them."""
    plan = next(iter(perturbed_layers(model).values())).flipout
    if plan.held is not None and plan.held.session is not None:
        return plan.held.session.examples
    return next((root.running.examples for root, _ in plan.roots if root.running.examples is not None), None)


def example_weights(layer: nn.Module) -> dict[str, Tensor]:
    """name → (N, *shape): the Parameters that each example of the held batch really sees."""
    if not isinstance(layer, Perturbed):
        raise NotPerturbed(
            f"{type(layer).__name__} is not a perturbed layer; example_weights takes one layer, such as model.fc1."
        )
    follow_all(layer, [layer])
    session, keys = held_pass(layer)
    if session.examples is None:
        raise NoExampleWeights(
            f"{label_of(layer)}: the number of examples is not known yet. Call the model first, inside of hold."
        )
    return weights_of(layer, session, keys)


def weights_of(layer: Perturbed, session: Pass, keys: Keys, example: int | None = None) -> dict[str, Tensor]:
    """The weights of all examples of the draw, or of one."""
    weights = {}
    for name in perturbable(type(layer), layer):
        parameter = attrgetter(name)(layer)
        noise = Perturbations(layer, session.to(parameter.device), keys, parameter.dtype, layer.flipout.scheme)
        count = 1 if example is not None else session.examples or 0
        if name in noise:
            p = noise.under(name, session.offset + example, 1) if example is not None else noise[name]
            weights[name] = layer.flipout.scheme.weights(p, sign_groups(layer, name))
        else:
            weights[name] = parameter.expand(count, *parameter.shape)
    return weights


def weighted_sums(model: nn.Module, coefficients: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Every perturbed Parameter, once, with Σ_n F_n ΔW_n over the held draw's examples: as many as coefficients."""
    seen = set()
    for layer in perturbed_layers(model).values():
        session, keys = held_pass(layer)
        session.count(len(coefficients) * session.draw.rows, f"{len(coefficients)} coefficients")
        for name in layer.flipout.distributions:
            parameter = attrgetter(name)(layer)
            if id(parameter) not in seen:
                seen.add(id(parameter))
                scheme = layer.flipout.scheme
                here, dtype = session.to(parameter.device), parameter.dtype
                made = here.at_once(dtype, scheme.group, scheme.is_grouped)
                p = Perturbations(layer, here, keys, dtype, scheme, made)[name]
                yield parameter, scheme.weighted(p, sign_groups(layer, name), coefficients)
