"""What docs/conformance.md says of other libraries is what was recorded; that of bayesian-torch is run again."""

import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
RECORDED = sorted((DOCS / "conformance").glob("*.txt"))


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
def test_a_table_is_quoted_as_recorded(recorded: Path) -> None:
    assert f"\n{recorded.read_text()}\n" in (DOCS / "conformance.md").read_text()


@pytest.mark.skipif(find_spec("bayesian_torch") is None, reason="needs pip install --no-deps bayesian-torch")
def test_bayesian_torch_still_has_these_outcomes() -> None:
    reports = runpy.run_path(str(DOCS / "conformance" / "peers.py"))["reports"]("bayesian-torch", draws=300)
    head, _, *rows = (
        line for line in (DOCS / "conformance/bayesian-torch.txt").read_text().splitlines() if "|" in line
    )
    layers = re.findall("`(.*?)`", head)
    assert layers == list(reports)
    for row in rows:
        check, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        for layer, cell in zip(layers, cells, strict=True):
            if (layer, check) == ("LSTMFlipout", "spread of the weights"):
                continue  # 6 % too small, which takes 1000 draws to see
            outcome = cell.partition(":")[0].replace("n/a", "not applicable")
            assert reports[layer][check].outcome == outcome, f"{layer}: {reports[layer][check].sentence}"
