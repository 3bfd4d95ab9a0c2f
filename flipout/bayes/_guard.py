"""An optimiser step that a non-finite gradient cannot spoil."""

import warnings
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .._parameter_groups import undecayed_ids
from .._shards import held_here
from ..errors import InvalidArgument


class Skipped(NamedTuple):
    """A step that was not taken, and why."""

    step: int  # the step's number from 0; skipped steps count too
    loss: float | None  # the loss, or None if it was not given
    parameters: tuple[str, ...]  # names of the Parameters whose gradient is not finite

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", loss={self.loss:.6g}"
        more = f", … ({len(self.parameters)})" if len(self.parameters) > 3 else ""
        return f"Skipped(step={self.step}{loss}, parameters={', '.join(self.parameters[:3]) or 'none'}{more})"


class Guard:
    """Take an optimiser step only if the loss and all gradients are finite.

    Call `guard.step(loss)` instead of `optimizer.step()`. If a number is infinite or NaN, the Parameters and the
    optimiser stay unchanged. The step is warned about, returned and appended to `guard.skipped`. With several
    processes, all of them skip together.

    Args:
        optimizer: The optimiser.
        model: The model, or the ELBO, that gives the Parameters their names.

    Raises:
        InvalidArgument: `optimizer` is not an optimiser.

    Example:
        >>> guard = bayes.Guard(optimizer, elbo)
        >>> loss.backward()
        >>> skipped = guard.step(loss)
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module | None = None) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InvalidArgument(f"Guard({optimizer!r}): expected the optimiser: Guard(optimizer, model).")
        self.optimizer = optimizer
        self.skipped: list[Skipped] = []
        self._names = {} if model is None else {id(p): name for name, p in model.named_parameters()}
        if model is not None:
            self._warn_of_groups(model)
        self._steps = 0

    def _warn_of_groups(self, model: nn.Module) -> None:
        """Warn of learned spreads and noise that the optimiser does not have, or that it decays."""
        decay = {id(p): group.get("weight_decay", 0) for group in self.optimizer.param_groups for p in group["params"]}
        undecayed = undecayed_ids(model)
        learned = [(name, id(p)) for name, p in model.named_parameters() if p.requires_grad and id(p) in undecayed]
        missing = [name for name, key in learned if key not in decay]
        if missing:
            warnings.warn(
                f"Guard: the optimiser does not have {_listed(missing)}, so they are not trained. Make the "
                "optimiser after flipout.perturb(model, …), from elbo.parameters().",
                RuntimeWarning,
                stacklevel=3,
            )
        decayed = [name for name, key in learned if decay.get(key)]
        if decayed:
            warnings.warn(
                f"Guard: the optimiser's weight decay pulls {_listed(decayed)} to 0, whatever the data say, though 0 "
                "means nothing special there. Make the optimiser from "
                "flipout.parameter_groups(elbo, weight_decay=…), which spares them.",
                RuntimeWarning,
                stacklevel=3,
            )

    @torch.no_grad()
    def step(self, loss: Tensor | None = None) -> Skipped | None:
        """Take one step of the optimiser, or skip it.

        Args:
            loss: The loss, of shape (). It is checked together with the gradients.

        Returns:
            None, or why the step was skipped.

        Raises:
            InvalidArgument: `loss` is not a tensor.
        """
        number, self._steps = self._steps, self._steps + 1
        if loss is not None and not isinstance(loss, Tensor):
            raise InvalidArgument(f"guard.step of {type(loss)}: expected the loss, a tensor: guard.step(terms.loss).")
        gradients = self._gradients()
        checked = [*gradients.values(), *([] if loss is None else [held_here(loss)])]
        if not checked or not _is_any([~tensor.isfinite().all() for tensor in checked]):
            self.optimizer.step()
            return None
        names = tuple(name for name, gradient in gradients.items() if not bool(gradient.isfinite().all()))
        skipped = Skipped(number, None if loss is None else loss.item(), names)
        self.skipped.append(skipped)
        warnings.warn(
            f"Step {number} was skipped and the Parameters are unchanged: "
            f"{'' if skipped.loss is None else f'the loss is {skipped.loss}, '}the gradient is not finite in "
            f"{', '.join(names) or 'no Parameter of this process'}.",
            RuntimeWarning,
            stacklevel=3,
        )
        return skipped

    def _gradients(self) -> dict[str, Tensor]:
        """Return this rank's gradients by the names of their Parameters."""
        gradients = {}
        for i, group in enumerate(self.optimizer.param_groups):
            for j, p in enumerate(group["params"]):
                if p.grad is not None:
                    values = p.grad.coalesce().values() if p.grad.is_sparse else p.grad
                    gradients[self._names.get(id(p), f"group {i}, Parameter {j}")] = held_here(values)
        return gradients


def _listed(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if names[1:] else "")


def _is_any(flags: list[Tensor]) -> bool:
    """Return True if any flag is true in any process."""
    is_any = torch.stack([flag.to(flags[0].device) for flag in flags]).any().to(torch.uint8)
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(is_any, dist.ReduceOp.MAX)
    return bool(is_any)
