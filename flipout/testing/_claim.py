"""What a layer is claimed to do."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import InvalidArgument

Value = float | Tensor | Callable[[], Tensor]
Call = Callable[[Tensor], object]


@dataclass(frozen=True)
class Claim:
    """What a layer is claimed to do: the weights of each example are mean + spread × noise.

    All fields have defaults. A check whose field is missing is not applicable.

    Args:
        plain: The same layer without noise. It is called with other weights for the brute force, so only the names and
            shapes of its Parameters matter, unless `mean` leaves some out.
        mean: Name of a Parameter of `plain` → its mean: a number, a tensor, or a function that returns a tensor. A
            Parameter of the layer under test, or a function of some, gives gradients.
        spread: Name → the scale of the noise, in the same way: the standard deviation for Gaussian noise. Parameters
            that are left out have no noise.
        noise: Returns standard noise of a shape, or name → such a function. The default is Gaussian.
        disabled: What the mode is called → a function of x that runs the layer in a mode without noise, such as eval.
        kl: Runs the layer on x, as in training, and returns the KL that it adds to the loss.
        prior: Mean and standard deviation of the Gaussian prior, or name → (mean, standard deviation).
        weights: Runs the layer on x and returns its output and name → the weights that each example saw, (N, *shape).
        pair: Runs two layers of equal shape on x in one pass, and returns both outputs.
        parameters: The leaves that gradients are compared in. The default is those of the layer, if it is a module.

    Example:
        >>> layer = bayesian_torch.layers.LinearFlipout(8, 4)
        >>> claim = testing.Claim(
        ...     plain=torch.nn.Linear(8, 4),
        ...     mean={"weight": layer.mu_weight, "bias": layer.mu_bias},
        ...     spread={
        ...         "weight": lambda: softplus(layer.rho_weight),
        ...         "bias": lambda: softplus(layer.rho_bias),
        ...     },
        ...     kl=lambda x: layer(x)[1],
        ...     prior=(0.0, 1.0),
        ... )
    """

    plain: nn.Module | None = None
    mean: Mapping[str, Value] = field(default_factory=dict)
    spread: Mapping[str, Value] = field(default_factory=dict)
    noise: Callable[[torch.Size], Tensor] | Mapping[str, Callable[[torch.Size], Tensor]] = torch.randn
    disabled: Mapping[str, Call] = field(default_factory=dict)
    kl: Callable[[Tensor], Tensor | float] | None = None
    prior: tuple[Value, Value] | Mapping[str, tuple[Value, Value]] | None = None
    weights: Callable[[Tensor], tuple[object, Mapping[str, Tensor]]] | None = None
    pair: Callable[[Tensor], tuple[object, object]] | None = None
    parameters: Iterable[Tensor] | None = None

    def __post_init__(self) -> None:
        if self.plain is None and (self.mean or self.spread):
            raise InvalidArgument(
                "Claim(mean=…, spread=…) without plain: give the layer without noise too, such as nn.Linear(8, 4)."
            )
        names = [] if self.plain is None else [name for name, _ in self.plain.named_parameters(remove_duplicate=False)]
        unknown = [name for name in [*self.mean, *self.spread] if name not in names]
        if unknown:
            raise InvalidArgument(f"Claim: plain has no Parameter {unknown[0]!r}; it has {', '.join(names) or 'none'}.")

    @property
    def has_law(self) -> bool:
        """Whether the distribution of the weights is claimed, so that they can be drawn by brute force."""
        return self.plain is not None and bool(self.spread)

    def means(self) -> dict[str, Tensor]:
        """Return name → mean for every Parameter of `plain`, each once, of the Parameter's shape."""
        assert self.plain is not None
        return {
            name: value_of(self.mean[name], p) if name in self.mean else p for name, p in self.plain.named_parameters()
        }

    def spreads(self) -> dict[str, Tensor]:
        """Return the spread of every Parameter that has noise, of the Parameter's shape."""
        assert self.plain is not None
        shapes = dict(self.plain.named_parameters(remove_duplicate=False))
        return {name: value_of(value, shapes[name]) for name, value in self.spread.items()}

    def standard_noise(self, name: str, like: Tensor) -> Tensor:
        """Return fresh standard noise for a Parameter, of the shape of `like`.

        Args:
            name: The name of the Parameter in `plain`.
            like: A tensor of the noise's shape, dtype and device.
        """
        noise = self.noise[name] if isinstance(self.noise, Mapping) else self.noise
        return noise(like.shape).to(like)

    def draw(self) -> dict[str, Tensor]:
        """Return one explicit sample of all weights by name, each of its Parameter's shape, differentiable."""
        weights = self.means()
        for name, spread in self.spreads().items():
            weights[name] = weights[name] + spread * self.standard_noise(name, spread)
        return weights

    def run(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return the output (N, …) of the plain layer for x with these weights.

        Args:
            weights: Name of a Parameter of `plain` → its values.
            x: A batch of inputs, (N, …).
        """
        assert self.plain is not None
        return tensor_of(functional_call(self.plain, dict(weights), (x,)))


def value_of(value: Value, like: Tensor) -> Tensor:
    """Return a mean or a spread as a tensor of a Parameter's shape."""
    value = value() if callable(value) and not isinstance(value, Tensor) else value
    return torch.as_tensor(value, dtype=like.dtype, device=like.device).expand(like.shape)


def tensor_of(output: object) -> Tensor:
    """Return an output, or the first tensor of a tuple, such as the sequence of an LSTM."""
    while isinstance(output, (tuple, list)) and output:
        output = output[0]
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise InvalidArgument(
            f"The layer returned {type(output).__name__}; expected a floating-point tensor, or a tuple that begins "
            "with such a tensor. Wrap the layer: check(lambda x: layer(x).logits, x)."
        )
    return output
