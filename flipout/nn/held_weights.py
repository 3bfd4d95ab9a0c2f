"""What the examples of a held draw see: their number, their weights, and sums over their perturbations."""

from collections.abc import Iterable, Iterator
from operator import attrgetter

from torch import Tensor, nn

from ..draws.passes import Pass
from ..errors import NoExampleWeights, NotPerturbed
from .base import Perturbed
from .declaration import perturbable, sign_groups
from .layers import label_of
from .models import perturbed_layers
from .parameters import Perturbations
from .plan import Keys
from .structure import follow_all


def held_pass(layer: Perturbed) -> tuple[Pass, Keys]:
    """Return the held pass of a layer, and the keys of its Parameters.

    Raises:
        NoExampleWeights: The layer is not inside `hold`.
    """
    held = layer.flipout.held
    if held is None or held.session is None or held.keys is None:
        raise NoExampleWeights(
            f"{label_of(layer)}: no draw is held. Ask inside `with flipout.hold(model):`, and ask that model itself: "
            "a copy holds none."
        )
    return held.session, held.keys[layer.flipout]


def example_count(layers: Iterable[Perturbed]) -> int | None:
    """Return the number of examples in the layers' held draw, or else in their last forward pass; None if not known."""
    plan = next(iter(layers)).flipout
    if plan.held is not None and plan.held.session is not None:
        return plan.held.session.examples
    return next((root.running.examples for root, _ in plan.roots if root.running.examples is not None), None)


def example_weights(layer: nn.Module) -> dict[str, Tensor]:
    """Return the weights that each example of the held batch sees.

    Call it inside `hold`, after the model.

    Args:
        layer: A perturbed layer of the model.

    Returns:
        Name of a Parameter → its values, (N, *shape). Parameters without noise are repeated.

    Raises:
        NotPerturbed: This is not a perturbed layer.
        NoExampleWeights: No draw is held, the model was not called yet, or the scheme has no per-example weights.

    Example:
        >>> with flipout.hold(model):
        ...     y = model(x)
        ...     W = flipout.example_weights(model.fc1)["weight"]  # (N, out, in)
    """
    if not isinstance(layer, Perturbed):
        raise NotPerturbed(
            f"{type(layer).__name__} is not a perturbed layer; example_weights takes one layer, such as model.fc1."
        )
    follow_all(layer.modules(), [layer])
    session, keys = held_pass(layer)
    if session.examples is None:
        raise NoExampleWeights(
            f"{label_of(layer)}: the number of examples is not known yet. Call the model first, inside `hold`."
        )
    return weights_of(layer, session, keys)


def weights_of(layer: Perturbed, session: Pass, keys: Keys, example: int | None = None) -> dict[str, Tensor]:
    """Return the weights of all examples of a pass, or of a single one."""
    weights = {}
    for name in perturbable(type(layer), layer):
        parameter = attrgetter(name)(layer)
        noise = Perturbations(layer, session.to(parameter.device), keys, parameter.dtype, layer.flipout.scheme)
        count = 1 if example is not None else session.examples or 0
        if name in noise:
            p = noise.for_examples(name, session.offset + example, 1) if example is not None else noise[name]
            weights[name] = noise.scheme.weights(p, sign_groups(layer, name))
        else:
            weights[name] = parameter.expand(count, *parameter.shape)
    return weights


def weighted_sums(model: nn.Module, coefficients: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Yield every perturbed Parameter once, with Σ_n F_n ΔW_n over the examples of the held draw.

    Args:
        model: The model that holds a draw.
        coefficients: F, one for each example.
    """
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
                at_once = here.at_once(dtype, scheme.group, scheme.is_grouped)
                noise = Perturbations(layer, here, keys, dtype, scheme, at_once)
                yield parameter, noise.scheme.weighted(noise[name], sign_groups(layer, name), coefficients)
