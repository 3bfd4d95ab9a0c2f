"""The rows of the paper's tables of language models: what regularises each, and the paper's numbers.

Flipout comes first, then the same noise shared by a batch, then the other methods.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

import flipout
from flipout import regularizers as rival

from .models import DropoutRates, RegularizedModel, Shape
from .step_signs import StepSignsLSTM

# Under autocast torch's LSTM computes in float16. Shared noise of σ = 0 is the plain LSTM, in the dtype asked for.
PLAIN = flipout.MultiplicativeGaussian(0.0)


@dataclass(frozen=True)
class Row:
    """One row of a table: a model and its regularisation."""

    name: str
    title: str
    paper: tuple[float, float] | None = None  # validation and test; for a tied decoder, the numbers of the untied one
    drop: DropoutRates = field(default_factory=DropoutRates)
    lstm: Callable[..., nn.LSTM] = nn.LSTM
    noise: flipout.Distribution = PLAIN
    scheme: Literal["shared", "flipout"] = "shared"
    weights: tuple[str, ...] = ("hh",)  # weights with noise
    signs: Literal["window", "run"] = "window"  # how long a stream keeps its signs, under flipout
    eval_factor: float = 1.0  # of the hidden-to-hidden weights, at validation and test
    tied: bool = False
    reading: str = ""  # the row of the table that this one is another reading of
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
            model = RegularizedModel(tokens, shape, self.drop, self.lstm, self.tied, self.eval_factor)
        if self.lstm is nn.LSTM:
            where = [f"layers.*.weight_{which}*" for which in self.weights]
            scheme = flipout.Flipout(reuse_signs=True) if self.signs == "run" else self.scheme
            flipout.perturb(model, self.noise, scheme=scheme, where=where)
        return model


GAUSS, HALF = flipout.MultiplicativeGaussian(1.0), flipout.DropConnect(0.5)

_PLAIN, _UPDATES = (1.468, 1.423), (1.337, 1.300)
_DROPPED = partial(rival.RecurrentDropoutLSTM, p=0.25)

CHARACTERS = (
    Row("flipout", "Mult. Gauss + flipout", (1.256, 1.227), noise=GAUSS, scheme="flipout"),
    Row("shared", "Mult. Gauss (σ = 1)", (1.257, 1.230), noise=GAUSS),
    Row("unregularised", "unregularised LSTM", _PLAIN),
    Row("gal", "Gal (2016)", (1.277, 1.245), lstm=partial(rival.VariationalLSTM, p_input=0.0, p_hidden=0.25)),
    Row("zoneout", "zoneout (2016)", (1.306, 1.270), lstm=partial(rival.ZoneoutLSTM, zoneout_h=0.05, zoneout_c=0.5)),
    # One mask for a window meets the paper's numbers to 0.007. The appendix says "per-step mask sampling", which misses
    # them by 0.12: that is another reading.
    Row("semeniuta-windows", "Semeniuta (2016)", _UPDATES, lstm=partial(_DROPPED, per_step=False)),
    *(
        Row(name, f"Semeniuta, {title}", _UPDATES, lstm=lstm, reading="semeniuta-windows", share=share)
        for name, title, lstm, share in (
            ("semeniuta", "a mask for each step", _DROPPED, 1.0),
            ("semeniuta-state", "of cell states, a mask for each step", partial(_DROPPED, on="state"), 1.0),
            ("semeniuta-short", "a mask for each step, a quarter of the epochs", _DROPPED, 0.25),
        )
    ),
    Row(
        "unregularised-short",
        "unregularised LSTM, a quarter of the epochs",
        _PLAIN,
        reading="unregularised",
        share=0.25,
    ),
)

_WD = DropoutRates(words=0.1, inputs=0.4, between=0.3, outputs=0.4)
_HALF_OFF = DropoutRates(words=0.1, inputs=0.5, between=0.5, outputs=0.5)
_SEMENIUTA, _ON_UPDATES = (81.91, 77.88), partial(rival.RecurrentDropoutLSTM, p=0.3)
_WD_PAPER, _FLIPOUT_PAPER = (78.82, 75.71), (76.88, 73.20)

_WD_FLIPOUT = Row("wd-flipout", "WD + flipout", _FLIPOUT_PAPER, _WD, noise=HALF, scheme="flipout")

WORDS = (
    _WD_FLIPOUT,
    Row("wd", "WD (2017)", _WD_PAPER, _WD, noise=HALF),
    Row("wd-flipout-tied", "WD + flipout, tied", _FLIPOUT_PAPER, _WD, noise=HALF, scheme="flipout", tied=True),
    Row("wd-tied", "WD (2017), tied", _WD_PAPER, _WD, noise=HALF, tied=True),
    Row("unregularised", "unregularised LSTM", (132.23, 128.97)),
    Row(
        "gal",
        "Gal (2016)",
        (78.24, 75.39),
        DropoutRates(words=0.2, inputs=0.35, between=0.35, outputs=0.35),
        partial(rival.VariationalLSTM, p_input=0.0, p_hidden=0.2),
    ),
    Row(
        "zoneout",
        "zoneout (2016)",
        (78.66, 75.45),
        _HALF_OFF,
        partial(rival.ZoneoutLSTM, zoneout_h=0.025, zoneout_c=0.25),
    ),
    Row("zaremba", "Zaremba (2014)", (80.40, 76.81), DropoutRates(0.1, 0.5, 0.5, 0.5, locked=False)),
    # "Dropout on inputs and outputs" of the whole model meets the paper's number to 2 %.
    # With dropout between the layers too, the row underfits and misses it by 5 %.
    Row("semeniuta-ends", "Semeniuta (2016)", _SEMENIUTA, replace(_HALF_OFF, between=0.0), _ON_UPDATES),
    *(
        Row(name, f"Semeniuta, {title}", _SEMENIUTA, drop, _ON_UPDATES, reading="semeniuta-ends")
        for name, title, drop in (
            ("semeniuta", "dropout between layers too", _HALF_OFF),
            ("semeniuta-steps", "between layers too, masks of each step", replace(_HALF_OFF, locked=False)),
            ("semeniuta-steps-ends", "masks of each step", replace(_HALF_OFF, locked=False, between=0.0)),
        )
    ),
)

# Other readings of the paper's "WD + flipout", whose gain over WD does not show in the table's row.
_READINGS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("steps", "signs anew at each step", {"noise": PLAIN, "scheme": "shared", "lstm": StepSignsLSTM}),
    ("kept-signs", "a stream keeps its signs", {"signs": "run"}),
    ("both-weights", "noise on both weights of a layer", {"weights": ("ih", "hh")}),
    # The mask halves the raw weight on average. Its mean is the weight in training, the raw weight in the test.
    ("raw-weight", "tested at the raw weight", {"eval_factor": 2.0}),
    ("example-words", "words dropped for each stream", {"drop": replace(_WD, words_of="example")}),
)
WORDS += tuple(
    replace(_WD_FLIPOUT, name=f"wd-flipout-{name}", title=f"WD + flipout, {title}", reading="wd-flipout", **changes)
    for name, title, changes in _READINGS
)

_LARGE = DropoutRates(words=0.1, outputs=0.4)

LARGE = (
    Row("wd-flipout", "WD + flipout", None, _LARGE, noise=HALF, scheme="flipout", weights=("ih", "hh"), tied=True),
    Row("wd", "WD", None, _LARGE, noise=HALF, weights=("ih", "hh"), tied=True),
)
