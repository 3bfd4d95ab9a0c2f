"""A posterior without training: the largest spread that a trained adapter tolerates, as in TFB."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from ..distributions.mean_field import inverse_softplus
from ..errors import InvalidArgument, NonFinite, Unsupported
from ..nn.companions import learned_companions
from ..nn.contexts import hold
from ..nn.eval_mode import in_eval
from ._config import PosteriorConfig
from ._refusals import check_adapter, check_peft_model, chosen_adapter, lora_layers
from ._saving import config_of

_START, _LEAST, _MOST = 1e-3, 1e-9, 1e3  # the first, the smallest and the largest spread that is tried
_SMALLEST = 1e-6  # smaller singular values of B are raised to this share of the largest


@dataclass(frozen=True)
class FittedSpread:
    """What `fit_spread` found."""

    std: float  # of the noise that the adapter adds to the adapted weights, within the column space of B
    loss: float  # on the calibration set, under that noise
    loss_at_mean: float  # without noise
    trials: tuple[tuple[float, float], ...]  # every spread that was tried, with its loss


def fit_spread(
    model: Any,
    batches: Iterable[Any],
    *,
    tolerance: float = 0.01,
    loss: Callable[[nn.Module, Any], Tensor] | None = None,
    samples: int = 4,
    steps: int = 10,
    seed: int = 0,
    prior_std: float = 0.2,
    adapter: str | None = None,
) -> FittedSpread:
    """Give a trained LoRA adapter the largest spread whose loss stays within a tolerance, without training.

    As in TFB, the noise has one standard deviation for all adapted weights. Every B is decomposed into U diag(d) Vᵀ. B
    becomes U diag(d) and A becomes Vᵀ A, so that their product is the same but for rounding. Row i of A gets the spread
    std / (scaling · dᵢ), so that the adapter adds noise of standard deviation std in each direction of U. Then std is
    doubled or halved until the tolerance lies between two of its values, and bisected on a logarithmic scale.

    Args:
        model: A `PeftModel` with a trained LoRA adapter. It gets a posterior on A if it has none.
        batches: The calibration set: batches of equal size, of keyword arguments unless `loss` takes something else.
        tolerance: The increase of the mean loss that is accepted, in the loss's own unit (nats per token, for a causal
            language model).
        loss: Maps the model and a batch to the mean loss of the batch. By default `model(**batch).loss`.
        samples: Samples of the weights for each sequence. All spreads are tried on the same ones.
        steps: Bisections.
        seed: The seed of these samples.
        prior_std: The standard deviation of the prior, where the adapter has no posterior yet.
        adapter: The name of the adapter, the active one by default.

    Returns:
        The spread, the losses, and everything that was tried.

    Raises:
        InvalidArgument: An argument is out of its range, there are no batches, B is 0, or the loss is within the
            tolerance for no spread, or for all.
        Unsupported: The adapter is no plain LoRA, adapts a grouped convolution, or has a posterior on B.
        NonFinite: The loss is infinite or NaN without noise, or under any.

    Example:
        >>> fitted = flipout.peft.fit_spread(model, batches, tolerance=0.01)
        >>> fitted.std, fitted.loss - fitted.loss_at_mean
    """
    from ._model import convert

    if not (isinstance(tolerance, Real) and 0 < float(tolerance) < math.inf):
        raise InvalidArgument(f"fit_spread(tolerance={tolerance!r}): expected a finite number > 0.")
    samples = whole_number("samples", samples, 1, of="fit_spread")
    steps = whole_number("steps", steps, 1, of="fit_spread")
    config = PosteriorConfig(_START, prior_std, "A", "flipout")
    check_peft_model(model, "fit_spread")
    name = chosen_adapter(model, adapter, "fit_spread")
    if name not in model.active_adapters:
        raise InvalidArgument(f"fit_spread(adapter={name!r}): it is not active. model.set_adapter({name!r}) first.")
    check_adapter(model, name)
    present, data = config_of(model, name), list(batches)
    if not data:
        raise InvalidArgument("fit_spread: no batches; expected at least one.")
    if present is not None and present.which != "A":
        raise Unsupported(f"fit_spread: adapter {name!r} has a posterior on {present.which}; expected A alone.")
    layers = lora_layers(model, name)
    for label, layer in layers:
        _check(label, layer, name)
    trial = _Trial(model, data, loss or _model_loss, samples, seed)
    with in_eval(model), torch.no_grad():
        at_mean = trial.at_mean()
        if not math.isfinite(at_mean):
            raise NonFinite(f"fit_spread: the loss without noise is {at_mean}.")
        if present is None:
            convert(model, name, config)
        scales = [(*_rotate(layer, name), float(layer.scaling[name])) for _, layer in layers]
        losses: dict[float, float] = {}

        def is_accepted(std: float) -> bool:
            _set_spread(scales, std)
            losses[std] = trial.under_noise()
            return losses[std] <= at_mean + tolerance

        std = _largest(is_accepted, steps)
        if std is None:
            smallest = min(losses)
            if not math.isfinite(losses[smallest]):
                raise NonFinite(
                    f"fit_spread: the loss is {losses[smallest]} even under a spread of {smallest:.1g}, and "
                    f"{at_mean:.4g} without noise. Compute the loss in fp32, or look for a division by 0 in it. The "
                    "adapter is left with this spread."
                )
            raise InvalidArgument(
                f"fit_spread(tolerance={tolerance}): even a spread of {smallest:.1g} changes the loss by "
                f"{losses[smallest] - at_mean:.3g}. Give a larger tolerance. The adapter is left with this spread."
            )
        _set_spread(scales, std)
    return FittedSpread(std, losses[std], at_mean, tuple(losses.items()))


@dataclass(frozen=True)
class _Trial:
    """The loss on the calibration set."""

    model: Any
    batches: list[Any]
    loss: Callable[[nn.Module, Any], Tensor]
    samples: int
    seed: int

    def at_mean(self) -> float:
        return sum(float(self.loss(self.model, batch)) for batch in self.batches) / len(self.batches)

    def under_noise(self) -> float:
        total = 0.0
        for sample in range(self.samples):
            for number, batch in enumerate(self.batches):
                # One draw for each batch and sample; all spreads see the same ones.
                with hold(self.model, seed=self.seed + sample * len(self.batches) + number):
                    total += float(self.loss(self.model, batch))
        return total / (self.samples * len(self.batches))


def _model_loss(model: nn.Module, batch: Any) -> Tensor:
    loss = model(**batch).loss
    if loss is None:
        raise InvalidArgument(
            f"fit_spread: the model returns no loss for a batch of {sorted(batch)}; expected 'labels' in it, or a "
            "function: fit_spread(…, loss=…)."
        )
    return loss


def _largest(is_accepted: Callable[[float], bool], steps: int) -> float | None:
    """Return the largest accepted spread that bisection finds; None if none is small enough."""
    low, high = _START, _START
    if is_accepted(_START):
        while is_accepted(high := 2 * high):
            low = high
            if high > _MOST:
                raise InvalidArgument(
                    f"fit_spread: the loss stays within the tolerance up to a spread of {high:.0f}, so the calibration "
                    "set sets no limit. Is the adapter trained, and does the loss depend on it? Or lower the tolerance."
                )
    else:
        while not is_accepted(low := low / 2):
            high = low
            if low < _LEAST:
                return None
    for _ in range(steps):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_accepted(middle) else (low, middle)
    return low


def _matrices(layer: Any, adapter: str) -> tuple[Any, str, Tensor, Tensor]:
    """Return the module that has A, the Parameter's name there, A, and B."""
    if adapter in layer.lora_A:
        module = layer.lora_A[adapter]
        return module, "weight", module._parameters["weight"], layer.lora_B[adapter]._parameters["weight"]
    table = layer.lora_embedding_A
    return table, adapter, table._parameters[adapter], layer.lora_embedding_B._parameters[adapter]


def _check(label: str, layer: Any, adapter: str) -> None:
    _, _, _, b = _matrices(layer, adapter)
    if getattr(layer.get_base_layer(), "groups", 1) > 1:
        raise Unsupported(f"fit_spread: {label} is a grouped convolution, whose B is not one matrix. Leave it out.")
    if layer.disable_adapters:
        raise InvalidArgument("fit_spread: the model's adapters are disabled. Leave model.disable_adapter() first.")
    if not layer.scaling[adapter]:
        raise InvalidArgument(
            f"fit_spread: the scaling of {label} is 0 (lora_alpha=0), so noise on A has no effect. Set another."
        )
    if not bool(b.any()):
        raise InvalidArgument(
            f"fit_spread: B of {label} is 0, where LoRA's B starts at 0, so noise on A has no effect. Train it first."
        )


def _rotate(layer: Any, adapter: str) -> tuple[Tensor, Tensor]:
    """Make the columns of B orthogonal, in place. Return the Parameter of A's spread, and the columns' lengths."""
    module, name, a, b = _matrices(layer, adapter)
    columns = b.double().flatten(1)
    surplus = max(columns.shape[1] - len(columns), 0)  # of the rank, over the output features: these columns become 0
    u, d, v = torch.linalg.svd(columns, full_matrices=surplus > 0)
    u, d = (nn.functional.pad(part, (0, surplus)) for part in (u, d))
    a.copy_((v @ a.double().flatten(1)).view_as(a))
    b.copy_((u * d).view_as(b))
    return learned_companions(module, name)["rho"], d.clamp_min(_SMALLEST * float(d[0]))


def _set_spread(scales: list[tuple[Tensor, Tensor, float]], std: float) -> None:
    for rho, lengths, scaling in scales:
        spread = (std / (abs(scaling) * lengths)).view(-1, *[1] * (rho.dim() - 1))
        rho.copy_(inverse_softplus(spread).expand_as(rho))
