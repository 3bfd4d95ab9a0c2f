"""The numbers of a layer, and settings whose claims could not be made."""

import pytest

from flipout.errors import InvalidArgument
from flipout.experiments.running.results import REPORTED, Check
from flipout.experiments.variance.curves import CurvesConfig, layer_numbers, paper_numbers
from flipout.variance import Decomposition, Term

TERMS = [Decomposition("fc1.weight", Term(1.0, 0.01), Term(0.2, 0.002), Term(0.1, 0.001), Term(0.25, 0.003))]


def test_numbers_of_a_layer() -> None:
    slope = Check("slope/fc1", "The slope is −1", REPORTED, "slope of flipout", -0.98, None, True)
    numbers = layer_numbers([slope], TERMS)
    assert numbers["fc1: slope of flipout"] == -0.98
    assert numbers["fc1: knee of shared, α/(β + γ)"] == pytest.approx(4.0)
    assert numbers["fc1: N at which shared is within 10 % of its floor"] == pytest.approx(30.0)
    assert numbers["fc1: α"] == "1.000e+00 ± 1.0e-02"
    assert set(paper_numbers(TERMS)) <= set(numbers)


@pytest.mark.parametrize("changes", [{"schemes": ("shared",)}, {"batch_sizes": (2, 4)}, {"batch_sizes": (1, 1)}])
def test_claims_need_both_schemes_from_a_batch_of_1(changes) -> None:
    with pytest.raises(InvalidArgument, match="begin at a batch of 1"):
        CurvesConfig(**changes)
