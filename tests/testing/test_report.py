"""The report of the checks, as a table and as an object."""

import pytest

from flipout.errors import InvalidArgument
from flipout.testing import Check, Report

CHECKS = (
    Check("fresh noise", "passed", "Between two calls 100% of the outputs changed.", 1.0, 1.0, 0.0),
    Check("spread of the weights", "failed", "The standard deviation is 1.414 of the claimed one.", 1.4142, 1.0, 1e-6),
    Check("KL in closed form", "not applicable", "Give a Claim with kl."),
)
REPORT = Report(CHECKS)


def test_checks_are_found_by_name_and_outcome() -> None:
    assert tuple(REPORT) == CHECKS
    assert len(REPORT) == 3
    assert REPORT["fresh noise"] is CHECKS[0]
    assert REPORT.names("failed") == ["spread of the weights"]
    with pytest.raises(InvalidArgument, match=r"'spread' is not in the report; it has 'fresh noise', 'spread of"):
        REPORT["spread"]


def test_a_layer_conforms_if_nothing_failed() -> None:
    assert not REPORT.conforms
    assert Report([CHECKS[0], CHECKS[2]]).conforms  # what could not be checked does not count


def test_the_table_is_aligned_and_has_every_number() -> None:
    head, *rows = str(REPORT).splitlines()
    column = {name: head.index(name) for name in ("outcome", "seen", "expected", "false alarms", "what was seen")}
    assert [row[column["outcome"] :].split("  ")[0] for row in rows] == ["passed", "failed", "not applicable"]
    assert [row[column["seen"] :].split()[0] for row in rows] == ["1", "1.41", "–"]
    assert [row[column["false alarms"] :].split()[0] for row in rows] == ["0", "1e-06", "–"]
    assert [row[column["what was seen"] :] for row in rows] == [check.sentence for check in CHECKS]


def test_reprs_fit_on_a_line() -> None:
    assert repr(REPORT) == "Report(1 passed, 1 failed, 1 not applicable)"
    assert repr(CHECKS[1]) == "Check(spread of the weights: failed, seen 1.41, expected 1)"
    assert repr(CHECKS[2]) == "Check(KL in closed form: not applicable)"
