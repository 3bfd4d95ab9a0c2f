"""The KL in transformers' `Trainer`, with the right scale."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from torch import Tensor, nn

from .._arguments import whole_number
from ..bayes import kl
from ..errors import InvalidArgument
from ..nn.companions import companion_names
from ..nn.models import perturbed_layers


class BayesianTrainerMixin:
    """Mixed into transformers' `Trainer`, before it: training minimises the negative ELBO per labelled item.

    The loss of a step is the mean of its items (labelled tokens, or rows of a classifier) plus KL / `num_data`, however
    the step is split over accumulated batches and devices, and however few items its last batch has. Evaluation reports
    the loss at the mean weights, without KL. Weight decay spares the spreads. Logs get an entry `kl`.

    Args:
        *args: Arguments of `Trainer`.
        num_data: The number of labelled items in the training set: `flipout.peft.count_labels(loader)`.
        kl_weight: The weight of the KL: a number, or a function of the step. 1 is Bayes.
        **kwargs: Keyword arguments of `Trainer`.

    Raises:
        InvalidArgument: `num_data` or `kl_weight` is out of its range.
        NoPrior: A learned spread has no prior.

    Example:
        >>> class Trainer(flipout.peft.BayesianTrainerMixin, transformers.Trainer): ...
        >>> trainer = Trainer(model, arguments, train_dataset=data, num_data=120_000)
        >>> trainer.train()
    """

    def __init__(
        self, *args: Any, num_data: int, kl_weight: float | Callable[[int], float] = 1.0, **kwargs: Any
    ) -> None:
        self.num_data = whole_number(
            "num_data", num_data, 1, of="Trainer", means="the number of labelled items in the training set"
        )
        if not callable(kl_weight):
            _check_weight(kl_weight)
        self.kl_weight = kl_weight
        self._last_kl: Tensor | None = None
        super().__init__(*args, **kwargs)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the loss of `Trainer`, of shape (), with the share of the KL that this batch has."""
        trainer: Any = super()
        loss, outputs = trainer.compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        if model.training:
            divergence = kl(model)
            self._last_kl = divergence.detach()
            share = self._weight() / self.num_data / self._batches_of_step(num_items_in_batch)
            loss = loss + share * divergence.to(loss.device)
        return (loss, outputs) if return_outputs else loss

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return the names that weight decay reaches: those of `Trainer`, without spreads and priors."""
        trainer: Any = super()
        companions = {
            f"{label}.{companion}".lstrip(".")
            for label, layer in perturbed_layers(model).items()
            for name in layer.flipout.learned
            for companion in companion_names(layer, name)
        }
        return [name for name in trainer.get_decay_parameter_names(model) if name not in companions]

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log as `Trainer` does; beside a training loss, the KL of the last batch."""
        if "loss" in logs and self._last_kl is not None:
            logs = {**logs, "kl": self._last_kl.item()}
        trainer: Any = super()
        trainer.log(logs, *args, **kwargs)

    def _weight(self) -> float:
        if not callable(self.kl_weight):
            return self.kl_weight
        trainer: Any = self
        weight = self.kl_weight(trainer.state.global_step)
        _check_weight(weight)
        return weight

    def _batches_of_step(self, num_items: Tensor | int | None) -> int:
        """Return by how much the KL has to be divided here, so that a step has it once.

        `Trainer` divides a loss by the number of accumulated batches itself, unless it was divided by the items of the
        whole step already. Ranks are averaged, so each of them has the whole KL.
        """
        trainer: Any = self
        is_scaled = getattr(trainer, "loss_is_scaled_for_ga", None)
        if is_scaled is None:
            counts_items = trainer.model_accepts_loss_kwargs and num_items is not None
            is_scaled = counts_items or trainer.compute_loss_func is not None
        return trainer.current_gradient_accumulation_steps if is_scaled else 1


def count_labels(batches: Any, *, shifted: bool = True) -> int:
    """Count the labelled items of a training set, for `num_data`.

    Args:
        batches: The batches of one epoch, each with `labels`; −100 is no label.
        shifted: The labels are those of a causal language model, which predicts no first token. False for classifiers
            and for encoder-decoder models.

    Returns:
        The number of items that the loss is a mean of.

    Raises:
        InvalidArgument: A batch has no labels, or there is nothing to count.

    Example:
        >>> num_data = flipout.peft.count_labels(trainer.get_train_dataloader())
    """
    total = 0
    for batch in batches:
        if "labels" not in batch:
            raise InvalidArgument(f"count_labels: a batch has {sorted(batch)}; expected 'labels' in it.")
        labels = batch["labels"][..., 1:] if shifted else batch["labels"]
        total += int((labels != -100).sum())
    if not total:
        raise InvalidArgument("count_labels: there is no label; expected at least one.")
    return total


def _check_weight(weight: Any) -> None:
    if not (isinstance(weight, Real) and not isinstance(weight, bool) and 0 <= float(weight) < math.inf):
        raise InvalidArgument(f"Trainer(kl_weight={weight!r}): expected a finite number ≥ 0, or a function of a step.")
