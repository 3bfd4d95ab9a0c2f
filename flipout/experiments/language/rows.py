"""The rows of the paper's tables of language models: what regularises each, and the paper's numbers.

Flipout comes first, then the same noise shared by a batch, then the other methods.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import torch
from torch import nn

import flipout
from flipout import regularizers as rival

from .models import Dropout, RegularizedModel, Shape

# Under autocast torch's LSTM computes in float16. Shared noise of σ = 0 is the plain LSTM, in the dtype asked for.
PLAIN = flipout.MultiplicativeGaussian(0.0)


@dataclass(frozen=True)
class Row:
    """One row of a table: a model and its regularisation."""

    name: str
    title: str
    paper: tuple[float, float] | None = None  # validation and test; for a tied decoder, the numbers of the untied one
    drop: Dropout = field(default_factory=Dropout)
    lstm: Callable[..., nn.LSTM] = nn.LSTM
    noise: flipout.Distribution = PLAIN
    scheme: Literal["shared", "flipout"] = "shared"
    weights: tuple[str, ...] = ("hh",)  # weights with noise
    tied: bool = False
    reading: bool = False  # another reading of what the paper leaves open
    share: float = 1.0  # share of the epochs

    @property
    def quoted(self) -> tuple[float, float] | None:
        """The paper's numbers for this row. By their parameter counts, the paper's decoders are not tied."""
        return None if self.tied else self.paper

    @property
    def noisy(self) -> bool:
        return self.noise is not PLAIN

    def model(self, tokens: int, shape: Shape, seed: int) -> RegularizedModel:
        """Return the model. Models of one seed and one shape start equal."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model = RegularizedModel(tokens, shape, self.drop, self.lstm, self.tied)
        if self.lstm is nn.LSTM:
            where = [f"layers.*.weight_{which}*" for which in self.weights]
            flipout.perturb(model, self.noise, scheme=self.scheme, where=where)
        return model


GAUSS, HALF = flipout.MultiplicativeGaussian(1.0), flipout.DropConnect(0.5)

_PLAIN, _UPDATES = (1.468, 1.423), (1.337, 1.300)
_DROPPED = partial(rival.RecurrentDropoutLSTM, p=0.25)
_QUARTER = {"reading": True, "share": 0.25}

CHARACTERS = (
    Row("flipout", "Mult. Gauss + flipout", (1.256, 1.227), noise=GAUSS, scheme="flipout"),
    Row("shared", "Mult. Gauss (σ = 1)", (1.257, 1.230), noise=GAUSS),
    Row("unregularised", "unregularised LSTM", _PLAIN),
    Row("gal", "Gal (2016)", (1.277, 1.245), lstm=partial(rival.VariationalLSTM, p_input=0.0, p_hidden=0.25)),
    Row("zoneout", "zoneout (2016)", (1.306, 1.270), lstm=partial(rival.ZoneoutLSTM, zoneout_h=0.05, zoneout_c=0.5)),
    Row("semeniuta", "Semeniuta (2016)", _UPDATES, lstm=_DROPPED),
    Row("semeniuta-state", "Semeniuta, of cell states", _UPDATES, lstm=partial(_DROPPED, on="state"), reading=True),
    Row(
        "semeniuta-windows",
        "Semeniuta, a mask for a window",
        _UPDATES,
        lstm=partial(_DROPPED, per_step=False),
        reading=True,
    ),
    Row("semeniuta-short", "Semeniuta, a quarter of the epochs", _UPDATES, lstm=_DROPPED, **_QUARTER),
    Row("unregularised-short", "unregularised LSTM, a quarter of the epochs", _PLAIN, **_QUARTER),
)

_WD = Dropout(words=0.1, inputs=0.4, between=0.3, outputs=0.4)
_HALF_OFF = Dropout(words=0.1, inputs=0.5, between=0.5, outputs=0.5)
_SEMENIUTA, _ON_UPDATES = (81.91, 77.88), partial(rival.RecurrentDropoutLSTM, p=0.3)
_WD_PAPER, _FLIPOUT_PAPER = (78.82, 75.71), (76.88, 73.20)

WORDS = (
    Row("wd-flipout", "WD + flipout", _FLIPOUT_PAPER, _WD, noise=HALF, scheme="flipout"),
    Row("wd", "WD (2017)", _WD_PAPER, _WD, noise=HALF),
    Row("wd-flipout-tied", "WD + flipout, tied", _FLIPOUT_PAPER, _WD, noise=HALF, scheme="flipout", tied=True),
    Row("wd-tied", "WD (2017), tied", _WD_PAPER, _WD, noise=HALF, tied=True),
    Row("unregularised", "unregularised LSTM", (132.23, 128.97)),
    Row(
        "gal",
        "Gal (2016)",
        (78.24, 75.39),
        Dropout(words=0.2, inputs=0.35, between=0.35, outputs=0.35),
        partial(rival.VariationalLSTM, p_input=0.0, p_hidden=0.2),
    ),
    Row(
        "zoneout",
        "zoneout (2016)",
        (78.66, 75.45),
        _HALF_OFF,
        partial(rival.ZoneoutLSTM, zoneout_h=0.025, zoneout_c=0.25),
    ),
    Row("zaremba", "Zaremba (2014)", (80.40, 76.81), Dropout(0.1, 0.5, 0.5, 0.5, locked=False)),
    Row("semeniuta", "Semeniuta (2016)", _SEMENIUTA, _HALF_OFF, _ON_UPDATES),
    *(
        Row(f"semeniuta-{name}", f"Semeniuta, {title}", _SEMENIUTA, drop, _ON_UPDATES, reading=True)
        for name, title, drop in (
            ("steps", "masks of each step", replace(_HALF_OFF, locked=False)),
            ("ends", "none between layers", replace(_HALF_OFF, between=0.0)),
            ("steps-ends", "masks of each step, none between layers", replace(_HALF_OFF, locked=False, between=0.0)),
        )
    ),
)

_LARGE = Dropout(words=0.1, outputs=0.4)

LARGE = (
    Row("wd-flipout", "WD + flipout", None, _LARGE, noise=HALF, scheme="flipout", weights=("ih", "hh"), tied=True),
    Row("wd", "WD", None, _LARGE, noise=HALF, weights=("ih", "hh"), tied=True),
)
