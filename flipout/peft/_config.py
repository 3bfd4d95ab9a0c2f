"""The settings of an adapter's posterior, which are saved with its numbers."""

import math
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any, Literal, get_args

from .._typed import SHORT, Mismatch, typed
from ..distributions import MeanField
from ..errors import DataError, InvalidArgument
from ..schemes import SchemeName

Which = Literal["A", "B", "AB"]
FORMAT = 1  # of what `save_pretrained` writes


@dataclass(frozen=True)
class PosteriorConfig:
    """The settings of `bayesian_lora` for one adapter."""

    std: float
    prior_std: float
    which: Which
    scheme: SchemeName

    def __post_init__(self) -> None:
        for name in ("std", "prior_std"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf):
                raise InvalidArgument(f"bayesian_lora({name}={value!r}): expected a finite number > 0.")
        if self.which not in get_args(Which):
            raise InvalidArgument(f"bayesian_lora(which={self.which!r}): expected 'A' (as in BLoB), 'B' or 'AB'.")
        if self.scheme not in ("flipout", "shared", "independent"):
            raise InvalidArgument(
                f"bayesian_lora(scheme={self.scheme!r}): expected 'flipout', 'shared' or 'independent'."
            )

    def noise(self, prior: Any) -> MeanField:
        """Return the distribution of the adapter's matrices."""
        return MeanField(std=float(self.std), prior=prior)

    def saved(self, adapter: str, checksums: dict[str, str]) -> dict[str, Any]:
        """Return what is written to `adapter_config.json`."""
        return {"format": FORMAT, "adapter": adapter, **asdict(self), "sha256": checksums}


@dataclass(frozen=True)
class _Saved:
    """The fields that `PosteriorConfig.saved` writes, for the typed reader."""

    format: int
    adapter: str
    std: float
    prior_std: float
    which: str
    scheme: str
    sha256: dict[str, str]

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise Mismatch(f"format: {self.format} found; expected {FORMAT}")
        if not self.adapter or "." in self.adapter:
            raise Mismatch(f"adapter: {SHORT.repr(self.adapter)} found; expected a name without dots")


def read_config(saved: Any, source: str) -> tuple[PosteriorConfig, str, dict[str, str]]:
    """Return the settings, the adapter's name and the checksums of the files beside, from JSON.

    Raises:
        DataError: They are not what `save_pretrained` writes.
    """
    try:
        found = typed(saved, _Saved, "flipout_posterior")
        settings: Any = {field.name: getattr(found, field.name) for field in fields(PosteriorConfig)}
        return PosteriorConfig(**settings), found.adapter, found.sha256
    except (Mismatch, InvalidArgument) as error:
        raise DataError(
            f"{source}: {error}. Expected a posterior of format {FORMAT}, as flipout.peft writes it: "
            "save the adapter again, model.save_pretrained(…)."
        ) from error
