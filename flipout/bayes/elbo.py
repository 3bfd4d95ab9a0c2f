"""The evidence lower bound as a loss: the right scale for every way to split a batch."""

import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from numbers import Real
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .._arguments import whole_number
from ..draws.bits import transformed
from ..errors import InvalidArgument, InvalidInput, NonFinite, Unsupported
from ..nn.contexts import sampling
from ..nn.held_weights import example_count
from ..nn.models import perturbed_layers
from .kl import kl, one_draw, with_priors
from .likelihoods import Likelihood, likelihood_of

_ROUNDED = 0.1  # what low precision may leave above 0 of a log-probability


class Terms(NamedTuple):
    """loss = (kl_weight · kl · examples / num_data − log_likelihood) / batch."""

    loss: Tensor  # to be minimised, (); nats of an example
    log_likelihood: Tensor  # summed over these examples
    kl: Tensor  # of the whole model, without its weight
    kl_weight: float  # of this call
    examples: int  # in this call
    num_data: int  # in the training set

    @property
    def elbo(self) -> Tensor:
        """The bound for all of the data, (), in nats, as these examples estimate it; the KL in full."""
        return self.log_likelihood * (self.num_data / self.examples) - self.kl


def warm_up(steps: int, weight: float = 1.0) -> Callable[[int], float]:
    """A `kl_weight` that rises from 0 at step 0, in a line, to `weight` at step `steps`, and stays there."""
    steps = whole_number("steps", steps, 1, of="warm_up")
    _check_weight("warm_up(weight=…)", weight)
    return lambda step: weight * min(step / steps, 1.0)


class ELBO(nn.Module):
    """The negative bound per example of the data: a loss that does not depend on the batch size.

    `likelihood` is 'categorical', 'gaussian', 'bernoulli', 'poisson', one of `flipout.bayes.likelihoods`, or a function
    (output, target) → log-likelihoods (N, …), of which each example has the sum of its own. `num_data` is the number of
    examples in the training set, of the kind that `batch_dim` counts: tokens, where targets were flattened.
    `kl_weight` is a number (the paper's experiments have 0.1) or a function of the step. `batch_dim` is the example's
    dimension in the targets. Parameters of the likelihood are this module's: optimise `elbo.parameters()`. `check`
    refuses a loss that is not finite, and positive values of a function for whole targets; it makes a GPU wait.
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: Any,
        *,
        num_data: int | None = None,
        kl_weight: float | Callable[[int], float] = 1.0,
        batch_dim: int = 0,
        check: bool = True,
    ) -> None:
        super().__init__()
        self.num_data = whole_number(
            "num_data",
            num_data,
            1,
            of="ELBO",
            means="the number of examples in the training set, len(dataset)",
            more=". The KL counts once for all of them, so without it its scale would be wrong.",
        )
        self.batch_dim = whole_number(
            "batch_dim",
            batch_dim,
            0,
            of="ELBO",
            means="the dimension of the examples in the log-likelihoods",
            more=". That of the model's inputs is perturb(…, batch_dim=…).",
        )
        if not callable(kl_weight):
            _check_weight("ELBO(kl_weight=…)", kl_weight)
        found = with_priors(model)
        self.model, self.likelihood = model, likelihood_of(likelihood)
        self.kl_weight, self.check = kl_weight, check
        parallel = isinstance(model, nn.parallel.DistributedDataParallel)
        if parallel and isinstance(self.likelihood, nn.Module) and any(True for _ in self.likelihood.parameters()):
            raise Unsupported(
                f"ELBO(DistributedDataParallel(…), {likelihood!r}): the likelihood's Parameters would not be "
                "synchronised. Wrap the other way round: DistributedDataParallel(ELBO(model, …))."
            )

        alone = parallel and model.find_unused_parameters
        if alone and any(one.prior is not None and one.prior.learned for one in found):
            raise Unsupported(
                "ELBO(DistributedDataParallel(…, find_unused_parameters=True), …) with a learned prior: only the KL "
                "uses its Parameters, and data parallelism takes them for unused. Wrap the other way round: "
                "DistributedDataParallel(ELBO(model, …))."
            )

    def forward(self, x: Any, target: Any, *, batch: float | None = None, step: int | None = None) -> Terms:
        """The terms of one batch, or of a part of one.

        `batch` is the number of examples of the whole optimiser step on this rank, where this is only a part of them;
        the losses of the parts then add up to that of the whole. (Ranks with unequal shares: the mean over the ranks,
        since data parallelism averages.) `step` is for a `kl_weight` that is a function.
        """
        weight = self._weight(step)
        with self._draw():
            output = self.model(*x) if isinstance(x, tuple) else self.model(x)
            divergence, seen = kl(self.model), None if transformed() else example_count(self.model)
        each = self.likelihood(output, target)
        examples = self._count(each, target, seen)
        log_likelihood = each.sum(dtype=torch.promote_types(each.dtype, torch.float32))
        if batch is not None and not (isinstance(batch, Real) and 0 < float(batch) < math.inf):
            raise InvalidArgument(f"batch={batch!r}: expected the number of examples of the whole step, > 0.")
        # The mean over ranks with unequal shares may be below the share of one.
        if batch is not None and batch < examples and not (dist.is_available() and dist.is_initialized()):
            raise InvalidArgument(
                f"batch={batch!r} for {examples} examples: expected the number of examples of the whole step, of which "
                f"these are a part. Leave it out, or give at least batch={examples}."
            )
        loss = weight * divergence.to(log_likelihood.device) * (examples / self.num_data) - log_likelihood
        terms = Terms(loss / (batch or examples), log_likelihood, divergence, weight, examples, self.num_data)
        self._check_finite(terms)
        self._check_signs(each, target)
        return terms

    def _draw(self) -> AbstractContextManager[None]:
        """A draw in eval mode too: at the mean weights it would be no bound."""
        held = one_draw(self.model)
        training = all(layer.training for layer in perturbed_layers(self.model).values())
        return sampling(self.model) if isinstance(held, nullcontext) and not training else held

    def _weight(self, step: int | None) -> float:
        if not callable(self.kl_weight):
            return self.kl_weight
        if step is None:
            raise InvalidArgument("kl_weight is a function of the step: say which one, elbo(x, target, step=…).")
        weight = self.kl_weight(step)
        _check_weight(f"kl_weight({step})", weight)
        return weight

    def _count(self, each: Any, target: Any, seen: int | None) -> int:
        dim = self.batch_dim
        if not isinstance(each, Tensor) or each.dim() <= dim:
            given = f"a tensor of shape {tuple(each.shape)}" if isinstance(each, Tensor) else repr(type(each))
            raise InvalidInput(
                f"The likelihood returned {given}; expected log-likelihoods with the examples in dimension {dim}, such "
                "as (N,). Leave out its mean or sum (reduction='none'), and negate a loss."
            )
        if isinstance(target, Tensor) and (target.dim() <= dim or target.shape[dim] != each.shape[dim]):
            raise InvalidInput(
                f"The likelihood returned shape {tuple(each.shape)} for a target of shape {tuple(target.shape)}; "
                f"expected as many examples in dimension {dim}."
            )
        if not each.shape[dim]:
            raise InvalidInput("ELBO of a batch without examples. Leave it out.")
        if seen is not None and each.shape[dim] != seen and seen in each.shape:
            raise InvalidInput(
                f"Log-likelihoods of shape {tuple(each.shape)}, so {each.shape[dim]} examples in dimension {dim}; the "
                f"model's layers saw {seen} examples. Say where they are: ELBO(…, batch_dim={each.shape.index(seen)})."
            )
        if seen and each.shape[dim] != seen and not torch.compiler.is_compiling():
            warnings.warn(
                f"Log-likelihoods of {each.shape[dim]} examples, where the model's layers saw {seen}: num_data has to "
                f"count the former. Where tokens are folded into the batch, (N·T, …), and num_data={self.num_data} "
                "counts sequences, the KL is T times too large: return (N, T, …) and give targets (N, T).",
                RuntimeWarning,
                stacklevel=5,
            )
        if each.shape[dim] > self.num_data:
            warnings.warn(
                f"A batch of {each.shape[dim]} with num_data={self.num_data}: that is the number of examples in the "
                "training set, len(dataset), and not of batches.",
                RuntimeWarning,
                stacklevel=5,
            )
        return each.shape[dim]

    def _check_finite(self, terms: Terms) -> None:
        if not self.check or transformed() or bool(terms.loss.isfinite()):
            return
        values = {"log-likelihood": terms.log_likelihood.item(), "KL": terms.kl.item()}
        bad = " and ".join(f"the {name} is {value}" for name, value in values.items() if not math.isfinite(value))
        raise NonFinite(
            f"The loss is {terms.loss.item()}: {bad or 'its terms are finite, their sum is not'}. Lower the learning "
            "rate or clip the gradient, and look for infinite inputs; to skip such steps, use flipout.bayes.Guard "
            "with ELBO(…, check=False)."
        )

    def _check_signs(self, each: Tensor, target: Any) -> None:
        """A function that returns a loss would be maximised; densities may be above 1, probabilities are not."""
        known = isinstance(self.likelihood, Likelihood) or not isinstance(target, Tensor)
        if not self.check or transformed() or known or target.is_floating_point() or target.is_complex():
            return
        most = each.detach().max().item()
        if most > _ROUNDED:
            raise InvalidInput(
                f"The likelihood returned values up to {most:.4g} for targets of dtype {target.dtype}; expected "
                "log-probabilities, ≤ 0, which are maximised. Negate a loss: lambda output, target: -loss(output, "
                "target). For a density, give target.float()."
            )


def _check_weight(what: str, weight: Any) -> None:
    if not (isinstance(weight, Real) and not isinstance(weight, bool) and 0 <= float(weight) < math.inf):
        raise InvalidArgument(f"{what} is {weight!r}; expected a finite number ≥ 0.")
