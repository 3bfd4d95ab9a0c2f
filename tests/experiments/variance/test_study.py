"""The decomposition that a run wrote is read again, and settings that measure nothing are refused."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from flipout.errors import InvalidArgument
from flipout.experiments.variance.study import StudyConfig, decompositions
from flipout.variance import Decomposition, Term


def test_what_was_written_is_read(tmp_path: Path) -> None:
    terms = [Decomposition(name, *(Term(value, value / 10) for value in (3.0, 2.0, 1.0, 2.5))) for name in "ab"]
    path = tmp_path / "decomposition.json"
    path.write_text(json.dumps([asdict(term) for term in terms]))
    assert decompositions(path) == terms


@pytest.mark.parametrize("changes", [{"draws": 1}, {"pairs": 1}, {"schemes": ()}, {"batch_sizes": (0, 1)}])
def test_bad_settings_are_refused(changes) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(changes))):
        StudyConfig(**changes)
