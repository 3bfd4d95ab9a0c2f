"""Claims about rows: intervals over seeds, and curves compared by epochs."""

import math

import pytest

from flipout.experiments.language import claims
from flipout.experiments.language.rows import CHARACTERS
from flipout.experiments.running.results import REPORTED
from tests.experiments.language.toys import found_of, paper, trained


def test_epochs_of_rows_and_of_their_readings():
    config = paper("ptb-char")
    planned = {row.name: config.training_of(row).schedule.epochs for row in CHARACTERS}
    assert planned["flipout"] == planned["shared"] == 300
    assert {name for name, epochs in planned.items() if epochs == 15} == {"semeniuta-short", "unregularised-short"}
    assert set(planned.values()) == {15, 60, 300}
    bits = math.log(2)
    models = [trained("semeniuta-short", 0, bits, 1.31 * bits, (1.0,) * epochs) for epochs in (15, 14)]
    bars = [
        next(check for check in found_of("ptb-char", config, [row])[0] if check.quantity == "test BPC")
        for row in models
    ]
    assert [bar.holds for bar in bars] == [True, False]  # the second was cut short


def test_flipout_against_wd_has_an_interval_over_seeds():
    models = [
        trained(name, seed, math.log(value + seed), math.log(value - 4 + seed))
        for name, value in (("wd-flipout", 78.0), ("wd", 80.0), ("wd-flipout-tied", 74.5), ("wd-tied", 74.0))
        for seed in range(3)
    ]
    checks, ours, theirs = found_of("ptb-word", paper("ptb-word"), models)
    untied, tied = (check for check in checks if check.id.startswith("test-below-"))
    assert (untied.value, untied.holds, tied.holds) == (pytest.approx(-2.0), True, False)
    assert untied.interval == pytest.approx((-2.0, -2.0))
    bars = {check.id: check.holds for check in checks}
    assert (bars["test-wd-flipout"], bars["test-wd-flipout-tied"]) == (True, False)
    assert ours["WD + flipout: test perplexity"] == "75 ± 0.58 (3 seeds)"
    assert (theirs["WD + flipout: test perplexity"], theirs["WD (2017), tied: test perplexity"]) == (73.2, "–")
    assert "tokens/s" in str(ours["WD + flipout: seconds an epoch, tokens a second"])
    undecided, *_ = claims.over_seeds(
        "x", "x is below y", "difference", [-1.0, 1.0], lambda value, low, high: high < 0, "table"
    )
    assert undecided.remark == "these seeds cannot tell it from 0"


def test_curves_of_large_batches_are_compared_by_epochs():
    models = [trained("wd-flipout", 0, 4.0, 4.0, (6.0, 5.0, 4.0)), trained("wd", 0, 4.0, 4.0, (6.0, 5.5, 5.0))]
    checks, ours, theirs = found_of("ptb-large-batch", paper("ptb-large-batch"), models)
    lower, fewer = (check for check in checks if check.kind == REPORTED)
    assert (lower.value, lower.holds) == (-1.0, True)
    assert (fewer.value, fewer.interval, fewer.holds) == (1.5, None, True)
    assert fewer.remark == "one seed, so no interval"
    assert ours["WD + flipout: training perplexity at the end"] == pytest.approx(math.exp(4))
    assert theirs["WD + flipout: training perplexity at the end"] == theirs["WD: test perplexity"] == "–"
