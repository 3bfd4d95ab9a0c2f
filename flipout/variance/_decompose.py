"""Estimate the terms of the variance decomposition from gradients."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from .._model_calls import OutputSelector
from .._progress import wrapper
from .._student import interval
from ..errors import InvalidArgument
from ..nn.contexts import using
from ..schemes import Flipout
from ._checks import Batches, Loss
from ._gradients import BatchGradients
from ._moments import GradientMoments
from ._sampler import DrawnGradients, Sampler, checked_sampler
from ._theorem import Decomposition, Term

_ALPHA_ESTIMATES = 20  # independent estimates of α, whose spread gives its error


def decompose(
    model: nn.Module,
    loss: Loss,
    data: Batches,
    *,
    pairs: int = 200,
    batch_size: int = 256,
    examples: int = 20_000,
    generator: torch.Generator | None = None,
    sub_batch: int = 1024,
    at_once: int | None = None,
    output: OutputSelector | None = None,
    progress: Callable[[Iterable], Iterable] | bool = False,
) -> list[Decomposition]:
    """Estimate α, β and γ for each Parameter of a perturbed model, without bias.

    The weights do not change. α is the variance over single examples. β + γ is the covariance between the mean
    gradients of two separate batches that see one and the same weight. γ is their covariance if they share ΔŴ and every
    example has its own signs. Each covariance is the mean of a product, minus the product with another ΔŴ. A small γ
    may therefore come out below 0.

    Args:
        model: A perturbed model. Its batch-norm layers must be in eval mode.
        loss: Maps outputs and targets to the mean loss of the batch, of shape ().
        data: Inputs and targets, tensors (examples, …), which are drawn from with replacement. A tuple of inputs holds
            several arguments of the model, a dict holds keyword arguments. Or a function (size, generator) → (inputs,
            targets).
        pairs: Number of pairs of batches for β and γ.
        batch_size: Number of examples in each of these batches.
        examples: Number of single examples for α.
        generator: Chooses batches and draws. By default it is seeded from torch's global generator.
        sub_batch: Accepted as in `measure`, but without effect: these batches are never split.
        at_once: Number of batches in one `vmap` at most. Use 1 for a model that vmap cannot transform.
        output: Which part of what the model returns goes to the loss: the name of a field such as "logits", a position,
            or a function. Without it, everything.
        progress: True shows how far it has come. A function wraps the list of steps, as rich's `track` does.

    Returns:
        A `Decomposition` for each Parameter, or for each gate of an LSTM's weights.

    Raises:
        NotPerturbed: The model has no perturbed layers.
        InvalidArgument: The model, the data, the loss or a number cannot be measured with.

    Example:
        >>> for found in flipout.variance.decompose(model, cross_entropy, (x, y)):
        ...     print(found.parameter, found.knee, found.predict("flipout", 1024))
    """
    if pairs < 2 or examples < 2 * _ALPHA_ESTIMATES:
        raise InvalidArgument(
            f"pairs={pairs}, examples={examples}: standard errors need at least 2 and {2 * _ALPHA_ESTIMATES}."
        )
    steps = wrapper(progress)
    sampler = checked_sampler(model, loss, data, generator, sub_batch, at_once, output)
    scheme = Flipout()
    with using(model, scheme=scheme):
        single = BatchGradients(sampler, 1, scheme)
        chunks = BatchGradients(sampler, batch_size, scheme).chunks(pairs)
        alphas = [_alpha(single, examples // _ALPHA_ESTIMATES) for _ in steps(range(_ALPHA_ESTIMATES))]
        single.close()
        covariances = [_covariances(sampler, chunk, batch_size) for chunk in steps(chunks)]
    decompositions = []
    for name in sampler.parts:
        both, gamma = (torch.cat([pair[i][name] for pair in covariances]).tolist() for i in range(2))
        estimates = {
            "alpha": [alpha[name] for alpha in alphas],
            "beta": [b - g for b, g in zip(both, gamma, strict=True)],
            "gamma": gamma,
            "both": both,
        }
        terms = {key: Term(*interval(values)[:2], len(values) - 1) for key, values in estimates.items()}
        decompositions.append(Decomposition(name, **terms))
    return decompositions


def _alpha(single: BatchGradients, examples: int) -> dict[str, float]:
    moments = GradientMoments()
    for chunk in single.draws(examples):
        moments.add(chunk)
    return moments.variance()


def _covariances(sampler: Sampler, pairs: int, size: int) -> tuple[DrawnGradients, DrawnGradients]:
    """Return β + γ and γ from each pair of batches, averaged over the entries: (pairs,) for each Parameter."""
    batch, other_batch = sampler.batches(pairs, size), sampler.batches(pairs, size)
    base, other_base, signs, other_signs = (sampler.seeds(pairs) for _ in range(4))

    def one_weight(batch: list[Tensor], base: Tensor, signs: Tensor) -> DrawnGradients:
        return sampler.gradients(base, batch, sign_seed=signs, rows=size)  # all rows are one example

    def one_base(batch: list[Tensor], base: Tensor, signs: Tensor) -> DrawnGradients:
        return sampler.gradients(base, batch, sign_seed=signs)

    def covariance(first: DrawnGradients, same_base: DrawnGradients, new_base: DrawnGradients) -> DrawnGradients:
        return {
            label: (first[name][:, rows].double() * (same_base[name][:, rows].double() - new_base[name][:, rows]))
            .flatten(1)
            .mean(1)
            for label, (name, rows) in sampler.parts.items()
        }

    both = covariance(
        one_weight(batch, base, signs),
        one_weight(other_batch, base, signs),
        one_weight(other_batch, other_base, signs),
    )
    gamma = covariance(
        one_base(batch, base, signs),
        one_base(other_batch, base, other_signs),
        one_base(other_batch, other_base, other_signs),
    )
    return both, gamma
