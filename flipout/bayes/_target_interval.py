"""The interval that holds the target, and the notice that `interval` used to be another one."""

import warnings
from typing import TYPE_CHECKING

from torch import Tensor

from ..errors import ChangedMeaning
from ._mixture import likeliest_classes
from ._needs import check_level, check_several, needed_likelihood, needed_mixture

if TYPE_CHECKING:
    from ._prediction import Prediction

_is_said = False  # the notice is for the first call of a process


def target_interval(prediction: "Prediction", level: float) -> tuple[Tensor, Tensor] | Tensor:
    """Return what `Prediction.interval` describes."""
    check_level("interval", level)
    likelihood = needed_likelihood("interval", prediction)
    check_several("interval", prediction)
    if likelihood.entropic:
        return likeliest_classes(likelihood.probabilities(prediction.mean), level)
    mixture = needed_mixture("interval", prediction)
    low, high = (mixture.quantile((1 + side * level) / 2).to(prediction.mean.dtype) for side in (-1, 1))
    return low, high


def warn_of_new_meaning() -> None:
    """Warn, once in a process, that `interval` was the Monte Carlo error of the mean in version 0.3."""
    global _is_said
    if not _is_said:
        _is_said = True
        warnings.warn(
            "Prediction.interval has another meaning since 0.4: it holds the target, noise included, and its default "
            "level is 0.9. The Monte Carlo error of the mean is mean_interval(0.95). This is said once, by 0.4 only, "
            "and not after predict(elbo, x), which 0.3 did not have.",
            ChangedMeaning,
            stacklevel=4,
        )
