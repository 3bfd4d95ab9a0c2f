"""The evidence lower bound as a loss, with the right scale for every way to split a batch."""

import math
import warnings
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from numbers import Real
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .._arguments import whole_number
from .._model_calls import ModelInputs, OutputSelector, check_selector, model_call, select, select_tensor
from ..draws.bits import is_transformed
from ..errors import InvalidArgument, Unsupported
from ..nn.base import Perturbed
from ..nn.contexts import draw_and_mirror, sampling
from ..nn.held_weights import example_count
from ..nn.models import perturbed_layers
from ._kl import has_sampled_priors, kl, shared_draw, with_priors
from ._log_likelihoods import check_finite, check_not_a_loss, count_examples
from ._named import LikelihoodName, LogLikelihood, likelihood_of
from ._posterior import Posterior, posteriors
from ._terms import Terms, check_weight
from .likelihoods import Likelihood


class ELBO(nn.Module):
    """The negative evidence lower bound, per example of the data. Its scale does not depend on the batch size.

    The likelihood's Parameters belong to this module, so optimise `elbo.parameters()`. The weights are drawn in eval
    mode too, since the loss at the mean weights would not be a bound.

    Args:
        model: A model converted with `MeanField(prior=…)`.
        likelihood: A name, an object of `flipout.bayes.likelihoods`, or a function from (output, target) to
            log-likelihoods (N, …). All log-likelihoods of an example are summed.
        num_data: The number of examples in the training set, `len(dataset)`. An example is what one row of a batch
            holds: an image, a sequence, or a token if tokens are flattened into the batch.
        kl_weight: The weight of the KL: a number, or a function of the step. 1 is Bayes; the paper uses 0.1.
        batch_dim: The dimension of the examples in the log-likelihoods.
        output: Which part of what the model returns goes to the likelihood: the name of a field such as "logits", a
            position, or a function. Without it, a named likelihood takes the only tensor, and a function takes all that
            the model returns.
        antithetic: Average the log-likelihood over the draw and its mirror image, every perturbation negated. It takes
            two forward passes. `variance.measure` shows what it gives on your model.
        check: Raise an error if the loss is not finite, or if a function returns positive log-probabilities. On a GPU
            this makes the host wait.

    Raises:
        InvalidArgument: An argument is out of its range, or `likelihood` is a loss.
        NoPrior: A learned spread has no prior.
        Unsupported: A combination with `DistributedDataParallel` that would not synchronise all Parameters.

    Example:
        >>> elbo = bayes.ELBO(model, "categorical", num_data=len(dataset))
        >>> optimizer = torch.optim.Adam(elbo.parameters(), 1e-3)
        >>> elbo(x, y).loss.backward()
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: LikelihoodName | Likelihood | LogLikelihood,
        *,
        num_data: int,
        kl_weight: float | Callable[[int], float] = 1.0,
        batch_dim: int = 0,
        output: OutputSelector | None = None,
        antithetic: bool = False,
        check: bool = True,
    ) -> None:
        super().__init__()
        self.num_data = whole_number(
            "num_data",
            num_data,
            1,
            of="ELBO",
            means="the number of examples in the training set, len(dataset)",
            more=". The KL is divided by it.",
        )
        self.batch_dim = whole_number(
            "batch_dim",
            batch_dim,
            0,
            of="ELBO",
            means="the dimension of the examples in the log-likelihoods",
            more=". For the model's inputs, use perturb(…, batch_dim=…).",
        )
        if not callable(kl_weight):
            check_weight("ELBO(kl_weight=…)", kl_weight)
        check_selector(output, of="ELBO")
        found = with_priors(model)
        self.model, self.likelihood = model, likelihood_of(likelihood)
        self.kl_weight, self.output, self.antithetic, self.check = kl_weight, output, antithetic, check
        # Only the first batch is checked for mistakes, because reading its numbers makes the host wait for a GPU.
        self._has_checked_batch = not (check and isinstance(self.likelihood, Likelihood))
        if isinstance(model, nn.parallel.DistributedDataParallel):
            self._check_parallel(model, found)

    def forward(
        self, x: ModelInputs, target: Any, *, batch: float | Tensor | None = None, step: int | None = None
    ) -> Terms:
        """Compute the loss of one batch, or of a part of one.

        Args:
            x: The model's input. A tuple or list holds several arguments, a dict holds keyword arguments.
            target: The targets.
            batch: The number of examples of the whole optimiser step on this rank, if these examples are only a part
                of it. The losses of the parts then add up to the loss of the whole. If ranks have unequal shares, give
                their mean, since data parallelism averages. A tensor of shape () is a number too.
            step: The step, for a `kl_weight` that is a function.

        Returns:
            The loss and its terms, each of shape ().

        Raises:
            InvalidArgument: `batch` is smaller than the number of examples, or `step` is missing.
            InvalidInput: The log-likelihoods have the wrong shape, or look like a loss.
            NonFinite: The loss is infinite or NaN, and `check` is on.

        Example:
            >>> for part in torch.arange(100).split(32):
            ...     elbo(x[part], y[part], batch=100).loss.backward()
        """
        weight = self._weight(step)
        layers = perturbed_layers(self.model)
        call, (first, *mirror) = model_call(x), self._draws(layers.values())
        with first:
            output = call(self.model)
            divergence, seen = kl(self.model), None if is_transformed() else example_count(layers.values())
        log_likelihoods = self._log_likelihoods(output, target)
        for draw in mirror:
            with draw:
                output = call(self.model)
            log_likelihoods = (log_likelihoods + self._log_likelihoods(output, target)) / 2
        examples = count_examples(log_likelihoods, target, self.batch_dim, seen, self.num_data)
        if not self._has_checked_batch and not is_transformed():
            self._check_first_batch(output, target)
        divisor = self._divisor(batch, examples)
        log_likelihood = log_likelihoods.sum(dtype=torch.promote_types(log_likelihoods.dtype, torch.float32))
        loss = weight * divergence.to(log_likelihood.device) * (examples / self.num_data) - log_likelihood
        terms = Terms(loss / divisor, log_likelihood, divergence, weight, examples, self.num_data)
        if self.check and not is_transformed():
            check_finite(terms)
            if not isinstance(self.likelihood, Likelihood):
                check_not_a_loss(log_likelihoods, target)
        return terms

    def _draws(self, layers: Collection[Perturbed]) -> tuple[AbstractContextManager[None], ...]:
        """Return the contexts of the forward passes: a draw, and its mirror image if there is one."""
        if self.antithetic:
            if any(layer.flipout.held is not None for layer in layers):
                raise Unsupported("ELBO(…, antithetic=True) inside hold: it takes a draw and its mirror. Leave hold.")
            return draw_and_mirror(self.model)
        held = shared_draw(self.model, posteriors(self.model)) if has_sampled_priors(layers) else nullcontext()
        is_training = all(layer.training for layer in layers)
        return (sampling(self.model) if isinstance(held, nullcontext) and not is_training else held,)

    def _log_likelihoods(self, output: Any, target: Any) -> Any:
        pick = select_tensor if isinstance(self.likelihood, Likelihood) else select
        return self.likelihood(pick(output, self.output, of="ELBO"), target)

    def _check_first_batch(self, output: Any, target: Tensor) -> None:
        """Warn of what looks like a mistake in the first batch."""
        self._has_checked_batch = True
        with torch.no_grad():
            doubt = self.likelihood.doubt(select_tensor(output, self.output, of="ELBO"), target)
        if doubt is not None:
            warnings.warn(f"ELBO: {doubt}", RuntimeWarning, stacklevel=5)

    def _weight(self, step: int | None) -> float:
        if not callable(self.kl_weight):
            return self.kl_weight
        if step is None:
            raise InvalidArgument("kl_weight is a function of the step: say which one, elbo(x, target, step=…).")
        weight = self.kl_weight(step)
        check_weight(f"kl_weight({step})", weight)
        return weight

    def _divisor(self, batch: float | Tensor | None, examples: int) -> float | Tensor:
        """Return the number of examples of the whole step."""
        if batch is None:
            return examples
        if isinstance(batch, Tensor) and batch.dim() == 0 and not batch.is_complex() and batch.dtype != torch.bool:
            # Reading a tensor that is on a GPU would make the host wait.
            if not is_transformed() and (self.check or batch.device.type == "cpu"):
                self._check_batch(batch.item(), examples)
            return batch
        self._check_batch(batch, examples)
        return batch

    def _check_batch(self, batch: Any, examples: int) -> None:
        if not (isinstance(batch, Real) and 0 < float(batch) < math.inf):
            raise InvalidArgument(f"batch={batch!r}: expected the number of examples of the whole step, > 0.")
        # Ranks with unequal shares give their mean, which may be below the share of one rank.
        if batch < examples and not (dist.is_available() and dist.is_initialized()):
            raise InvalidArgument(
                f"batch={batch!r} for {examples} examples: expected the number of examples of the whole step, which "
                f"these are a part of. Leave it out, or give at least batch={examples}."
            )

    def _check_parallel(self, model: nn.parallel.DistributedDataParallel, found: list[Posterior]) -> None:
        """Refuse Parameters that DistributedDataParallel around the model alone would not synchronise."""
        if self.antithetic:
            raise Unsupported(
                "ELBO(DistributedDataParallel(…), antithetic=True): data parallelism expects one forward pass before "
                "each backward pass. Wrap the other way round: DistributedDataParallel(ELBO(model, …))."
            )
        if isinstance(self.likelihood, nn.Module) and any(True for _ in self.likelihood.parameters()):
            raise Unsupported(
                f"ELBO(DistributedDataParallel(…), {self.likelihood!r}): the likelihood's Parameters would not be "
                "synchronised. Wrap the other way round: DistributedDataParallel(ELBO(model, …))."
            )
        is_learned = any(posterior.prior is not None and posterior.prior.learned for posterior in found)
        if model.find_unused_parameters and is_learned:
            raise Unsupported(
                "ELBO(DistributedDataParallel(…, find_unused_parameters=True), …) with a learned prior: only the KL "
                "uses its Parameters, and data parallelism takes them for unused. Wrap the other way round: "
                "DistributedDataParallel(ELBO(model, …))."
            )
