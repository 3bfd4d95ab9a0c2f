"""The measurement of the paper's appendix: the variance of each weight's gradient over random batches and draws."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass

import torch
from torch import nn

from .._arguments import whole_number
from .._model_calls import OutputSelector
from .._progress import wrapper
from .._student import interval
from ..errors import InvalidArgument
from ..nn.contexts import using
from ..schemes import Scheme, SchemeName, scheme_of
from ._checks import Batches, Loss
from ._gradients import BatchGradients
from ._moments import GradientMoments
from ._records import Measurements, Record
from ._sampler import checked_sampler


@dataclass(frozen=True)
class Antithetic:
    """A scheme whose gradient is the mean over a draw and its mirror image, at the price of two passes.

    Args:
        scheme: The scheme of the draw.

    Example:
        >>> schemes = ["flipout", flipout.variance.Antithetic("flipout")]
        >>> flipout.variance.measure(model, loss, (x, y), batch_sizes=[64], schemes=schemes)
    """

    scheme: SchemeName | Scheme = "flipout"  # the scheme of the draw


def measure(
    model: nn.Module,
    loss: Loss,
    data: Batches,
    *,
    batch_sizes: Sequence[int],
    schemes: Sequence[SchemeName | Scheme | Antithetic] = ("shared", "flipout"),
    draws: int = 200,
    repeats: int | Callable[[int], int] = 50,
    generator: torch.Generator | None = None,
    sub_batch: int = 1024,
    at_once: int | None = None,
    bases: int | Callable[[int], int] = 1,
    split: bool = False,
    output: OutputSelector | None = None,
    progress: Callable[[Iterable], Iterable] | bool = False,
) -> Measurements:
    """Measure the gradient variance of a perturbed model at each batch size under each scheme.

    The weights do not change. Each gradient has a fresh batch and a fresh draw. The variance of each weight's gradient
    is averaged over its Parameter, or over each gate of an LSTM's weights.

    Args:
        model: A perturbed model. Its batch-norm layers must be in eval mode.
        loss: Maps outputs and targets to the mean loss of the batch, of shape ().
        data: Inputs and targets, tensors (examples, …), which are drawn from with replacement. A tuple of inputs holds
            several arguments of the model, a dict holds keyword arguments. Or a function (size, generator) → (inputs,
            targets).
        batch_sizes: Batch sizes to measure.
        schemes: Schemes to compare, by name or as objects such as `Flipout(group=8)` or `Antithetic("flipout")`.
        draws: Gradients per estimate of a variance.
        repeats: Estimates per batch size, or a function of the batch size. Their spread gives the 90 % interval.
        generator: Chooses batches and draws. By default it is seeded from torch's global generator.
        sub_batch: Batches of more examples are accumulated over sub-batches of this size, which bounds memory.
        at_once: Number of batches in one `vmap` at most. Use 1 for a model that vmap cannot transform.
        bases: Number of base perturbations per batch, or a function of the batch size. Each serves an equal share of
            the batch, as on that many devices.
        split: Also measure the data term and the estimation term of the paper's equation (6). Takes two draws on each
            batch.
        output: Which part of what the model returns goes to the loss: the name of a field such as "logits", a position,
            or a function. Without it, everything.
        progress: True shows how far it has come. A function wraps the list of steps, as rich's `track` does.

    Returns:
        A `Record` for each Parameter, scheme and batch size.

    Raises:
        NotPerturbed: The model has no perturbed layers.
        InvalidArgument: The model, the data, the loss or a number cannot be measured with.

    Example:
        >>> measured = flipout.variance.measure(
        ...     model, cross_entropy, (x, y), batch_sizes=[1, 8, 64]
        ... )
        >>> measured.plot("variance.svg")
    """
    draws = whole_number("draws", draws, 2, more=": a variance needs two.")
    sampler = checked_sampler(model, loss, data, generator, sub_batch, at_once, output)
    bases_at = bases if callable(bases) else lambda _: bases
    for name, values in (("batch_sizes", batch_sizes), ("schemes", schemes)):
        if isinstance(values, str) or not isinstance(values, Sequence) or not values or len(set(values)) < len(values):
            raise InvalidArgument(f"{name}={values!r}: expected a list that is not empty and has nothing in it twice.")
    sizes = [whole_number("batch_size", size, 1) for size in batch_sizes]
    repeats_at = {size: whole_number("repeats", repeats(size) if callable(repeats) else repeats, 1) for size in sizes}
    steps = ((_drawn_by(scheme), size, i) for scheme in schemes for size in sizes for i in range(repeats_at[size]))
    records, estimates, gradients = [], [], None
    for (scheme, is_mirrored), size, i in wrapper(progress)(list(steps)):
        if i == 0:
            gradients, estimates = BatchGradients(sampler, size, scheme, bases_at(size), is_mirrored), []
        assert gradients is not None
        with using(model, scheme=scheme):
            estimates.append(_estimate(gradients, draws, split))
        if i + 1 == repeats_at[size]:
            gradients.close()
            label = f"antithetic({_label(scheme)})" if is_mirrored else _label(scheme)
            records += _records(label, size, draws, bases_at(size), estimates)
    return Measurements(records)


def _estimate(gradients: BatchGradients, draws: int, split: bool) -> GradientMoments:
    moments = GradientMoments()
    for chunk in gradients.draws(draws, pairs=split):
        moments.add(chunk)
    return moments


def _drawn_by(requested: SchemeName | Scheme | Antithetic) -> tuple[Scheme, bool]:
    """Return the scheme of the draws, and whether each comes with its mirror image."""
    is_mirrored = isinstance(requested, Antithetic)
    return scheme_of(requested.scheme if is_mirrored else requested), is_mirrored


def _records(scheme: str, size: int, draws: int, bases: int, estimates: list[GradientMoments]) -> list[Record]:
    """Summarise the repeated estimates at one batch size in a record for each Parameter."""
    variances = [estimate.variance() for estimate in estimates]
    covariances = [estimate.covariance() for estimate in estimates]
    records = []
    for name in variances[0]:
        mean, error, low, high = interval(variance[name] for variance in variances)
        data_term = interval(covariance[name] for covariance in covariances)[0] if covariances[0] else None
        records.append(
            Record(
                parameter=name,
                scheme=scheme,
                batch_size=size,
                variance=mean,
                error=error,
                low=low,
                high=high,
                draws=draws,
                repeats=len(estimates),
                bases=bases,
                data_term=data_term,
                estimation_term=None if data_term is None else mean - data_term,
            )
        )
    return records


def _label(scheme: Scheme) -> str:
    """Return the scheme's name and the options that differ from their defaults, as in flipout(group=2)."""
    options = fields(scheme) if is_dataclass(scheme) else ()
    changed = [option for option in options if getattr(scheme, option.name) != option.default]
    text = ", ".join(f"{option.name}={getattr(scheme, option.name)}" for option in changed)
    return f"{scheme.name}({text})" if text else scheme.name
