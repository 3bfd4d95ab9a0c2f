"""Write the table of the paper's claims into docs/paper.md, from the committed result files alone.

    python docs/claims.py

Each row names the checks that decide it. A test compares the page with what this script would write.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from flipout.experiments.running.results import MUST_HOLD, Check, Result

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "paper.md"
READING, REFUTED = "holds under this reading", "does not hold here"
BEGIN, END = "<!-- begin claims -->", "<!-- end claims -->"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and the checks that decide it."""

    place: str  # where the paper says it
    text: str
    experiment: str
    checks: str  # a pattern for the ids of the checks
    reading: str = ""  # what the claim is taken to mean, where the paper leaves it open
    within: str = ""  # the distance from a number of the paper that its check allows
    options: str = ""  # of the command that repeats it


TENFOLD = "each at least 10 times the next"
SLOPE = "log-log slope −1, to 0.05"
KNEE = "the knee α/(β + γ) is there"
LIKELIHOOD = "at least 2.5, by the likelihood"
UPDATES = "at most 2 times the updates"

CLAIMS = (
    Claim("section 4.1", "At N = 1 flipout and shared have the same variance", "variance-fc", "start-together"),
    Claim("section 4.1", "Every variance curve has the form a + b/N", "variance-convgg", "form"),
    Claim("theorem 2", "α, β and γ predict the variance of every scheme", "theorem", "predicted/fc"),
    Claim("section 3.2", "α ≫ β ≫ γ in FC", "theorem", "orders/.*", TENFOLD),
    Claim("section 3.2", "α ≫ β ≫ γ in ConVGG", "variance-convgg", "orders/.*", TENFOLD),
    Claim("section 3.2", "α ≫ β ≫ γ in the LSTM", "variance-lstm", "orders/.*", TENFOLD),
    Claim("figure 1a", "Flipout falls as 1/N at all sizes, FC", "variance-fc", "slope/.*", SLOPE),
    Claim("figure 1b", "Flipout falls as 1/N at all sizes, ConVGG", "variance-convgg", "slope/.*", SLOPE),
    Claim("figure 1c", "Flipout falls as 1/N at all sizes, LSTM", "variance-lstm", "slope/.*", SLOPE),
    Claim("figure 1a", "Shared levels off between N = 100 and 1000, FC", "variance-fc", "knee/.*", KNEE),
    Claim("figure 1b", "Shared levels off between N = 100 and 1000, ConVGG", "variance-convgg", "knee/.*", KNEE),
    Claim("figure 1c", "Shared levels off between N = 100 and 1000, LSTM", "variance-lstm", "knee/.*", KNEE),
    Claim("figure 1a", "Local reparameterisation has the least variance", "variance-fc", "below-local_reparam"),
    Claim("figure 3", "Flipout gains with two devices, a base each", "variance-multigpu", "gain-4096-on-2/.*"),
    Claim("figure 3", "Flipout gains with four devices, a base each", "variance-multigpu", "gain-8192-on-4/.*"),
    Claim("figure 6", "Flipout gains at N = 8192, weight-dropped LSTM", "variance-wd-lstm", "below-flipout"),
    Claim(
        "table 2", "Flipout is the best of six methods", "ptb-char", "ranking", "the six methods rank as in the paper"
    ),
    Claim("table 2", "Multiplicative Gaussian + flipout: 1.227", "ptb-char", "test-flipout", within="0.008"),
    Claim("table 2", "Multiplicative Gaussian: 1.230", "ptb-char", "test-shared", within="0.008"),
    Claim("table 2", "Unregularised: 1.423", "ptb-char", "test-unregularised", within="0.02"),
    Claim("table 2", "Gal: 1.245", "ptb-char", "test-gal", within="0.02"),
    Claim("table 2", "Zoneout: 1.270", "ptb-char", "test-zoneout", within="0.02"),
    Claim("table 2", "Semeniuta: 1.300", "ptb-char", "test-semeniuta-windows", "one mask for a window", "0.02"),
    Claim(
        "table 2",
        "Semeniuta: 1.300",
        "ptb-char",
        "test-semeniuta",
        "a mask for each step",
        "0.02",
        "--rows semeniuta",
    ),
    Claim("table 3", "Flipout gains 2.5 over WD", "ptb-word", "test-below-untied", "it gains at all"),
    Claim("table 3", "WD + flipout: 73.2", "ptb-word", "test-wd-flipout", within="2.3"),
    Claim("table 3", "WD: 75.7", "ptb-word", "test-wd", within="2 %"),
    Claim("table 3", "Unregularised: 129.0", "ptb-word", "test-unregularised", within="3 %"),
    Claim("table 3", "Gal: 75.4", "ptb-word", "test-gal", within="3 %"),
    Claim("table 3", "Zoneout: 75.5", "ptb-word", "test-zoneout", within="3 %"),
    Claim("table 3", "Zaremba: 76.8", "ptb-word", "test-zaremba", within="3 %"),
    Claim("table 3", "Semeniuta: 77.9", "ptb-word", "test-semeniuta-ends", "no dropout between layers", "3 %"),
    Claim(
        "table 3",
        "Semeniuta: 77.9",
        "ptb-word",
        "test-semeniuta",
        "dropout between layers too",
        "3 %",
        "--rows semeniuta",
    ),
    Claim("figure 7", "LSTM in batches of 8192: flipout converges faster", "ptb-large-batch", "fewer-epochs"),
    Claim("figure 7", "LSTM in batches of 8192: a lower training perplexity", "ptb-large-batch", "end-training"),
    Claim(
        "figure 2a", "About 3 times fewer iterations, FC", "large-batch-fc", "fewer-iterations-negative.*", LIKELIHOOD
    ),
    Claim(
        "figure 2a",
        "About 3 times fewer iterations, ConvLe",
        "large-batch-convle",
        "fewer-iterations-negative.*",
        LIKELIHOOD,
    ),
    Claim("section 4.3", "1.5 times faster by the clock, FC", "large-batch-fc", "by-the-clock"),
    Claim("section 4.3", "1.5 times faster by the clock, ConvLe", "large-batch-convle", "by-the-clock"),
    Claim("figure 4", "Flipout generalises as well as shared, FC", "large-batch-fc", "end-test-error"),
    Claim("figure 4", "Flipout generalises as well as shared, ConvLe", "large-batch-convle", "end-test-error"),
    Claim("figure 2b", "FlipES has the variance of IdealES", "es-ideal", "variance-at-most", "at most 1.1 times"),
    Claim("figure 2b", "FlipES trains as IdealES does", "es-ideal", "(end|mean)-.*", "2 standard deviations"),
    Claim("figure 2c", "FlipES is as data-efficient as backprop, FC", "es-backprop-fc", "updates-.*", UPDATES),
    Claim("figure 2d", "FlipES is as data-efficient as backprop, ConvLe", "es-backprop-convle", "updates-.*", UPDATES),
    Claim("section 4.4", "FlipES trains with a discrete loss", "es-discrete", "near-flipes-accuracy", "to 5 points"),
    Claim("section 4.4", "FlipES trains stochastic units", "es-discrete", "near-flipes-binary-units", "to 5 points"),
    Claim("figure 5", "One GPU replaces 40 cores or more", "es-scaling", "cores-replaced"),
    Claim("figure 5", "One GPU is at least 4 times cheaper", "es-scaling", "cheaper"),
)


def table() -> str:
    """Return the table in Markdown, after a sentence that counts the verdicts. On a phone its rows are cards."""
    rows = ["| paper | claim | verdict | measured (90 % interval) | `flipout run` |", "|---|---|---|---|---|"]
    verdicts = []
    for claim in CLAIMS:
        checks, seeds = _evidence(claim)
        text = f"{claim.text} ({claim.reading})" if claim.reading else claim.text
        command = f"`{claim.experiment}{' ' if claim.options else ''}{claim.options}`"
        measured = _measured(checks) + (f"; {seeds} seeds" if seeds > 1 else "")
        verdicts.append(_verdict(checks, claim))
        rows.append(f"| {' | '.join((claim.place, text, verdicts[-1], measured, command))} |")
    return "\n".join([_tally(verdicts), "", '<div class="claims" markdown>', "", *rows, "", "</div>"])


def _tally(verdicts: list[str]) -> str:
    def count(pattern: str) -> int:
        return sum(re.fullmatch(pattern, verdict) is not None for verdict in verdicts)

    numbers = count("(not )?within .*")
    return (
        f"Of {len(verdicts) - numbers} claims, {count('holds')} hold, {count(READING)} hold under the reading in "
        f"brackets, {count('holds in .*')} hold in part, and {count(REFUTED)} do not hold here. "
        f"Of {numbers} numbers in tables 2 and 3, ours is within the distance of {count('within .*')}."
    )


def updated(page: str) -> str:
    """Return the page with the table of today."""
    return re.sub(f"(?s){BEGIN}.*{END}", lambda _: f"{BEGIN}\n\n{table()}\n\n{END}", page)


def _evidence(claim: Claim) -> tuple[list[Check], int]:
    """Return the checks that decide a claim, and the number of seeds behind them."""
    folder = ROOT / "results" / claim.experiment
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    result = Result.read(folder / "result.json", config.get("shown", ()))
    checks = [check for check in result.checks if re.fullmatch(claim.checks, check.id)]
    if not checks or result.preset != "paper":
        raise SystemExit(f"{claim.experiment} ({result.preset}): no check of a full run matches {claim.checks!r}")
    seeds = config.get("seeds", 1)
    if isinstance(seeds, list):  # a row of a table may have fewer seeds than the run
        seeds = 1 if all(check.interval is None for check in checks) else len(seeds)
    return checks, seeds


def _verdict(checks: list[Check], claim: Claim) -> str:
    held = sum(check.holds for check in checks)
    if claim.within:
        return f"within {claim.within}" if held else f"not within {claim.within}"
    if held == len(checks):
        return READING if claim.reading else "holds"
    return REFUTED if not held else f"holds in {held} of {len(checks)}"


def _measured(checks: list[Check]) -> str:
    if len(checks) > 1:
        values = [check.value for check in checks if check.value is not None]
        return f"{checks[0].quantity}: {_shown(min(values))} to {_shown(max(values))}"
    (check,) = checks
    low, high = check.interval or (None, None)
    ends = f" ({_end(low)} … {_end(high)})" if check.interval else ""
    level = ", simultaneous" if ends and check.kind == MUST_HOLD else ""
    return f"{check.quantity}: {_shown(check.value)}{ends}{level}"


def _end(value: float | None) -> str:
    return "open" if value is None else _shown(value)


def _shown(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}".replace("-", "−")


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
