"""The times of the paper stand beside ours."""

import pytest

from flipout.experiments.es.scaling import claims
from flipout.experiments.es.scaling.claims import PAPER
from flipout.experiments.es.scaling.presets import ES_SCALING
from tests.experiments.es.scaling.toys import times


def test_the_table_of_the_paper_is_beside_ours():
    numbers, paper = claims.numbers({name: times(1.0, 80.0) for name in PAPER}, (8.0, 0.045))
    assert paper.keys() <= numbers.keys()
    assert (paper["FC 2048: FlipES, seconds"], paper["ConvLe 1.5: 40 cores, seconds"]) == (1.86, 132.0)
    assert numbers["FC 32: 40 cores, seconds"] == pytest.approx(2.0, rel=0.02)
    assert numbers["FC 32: cores that the device replaces"] == pytest.approx(80)
    assert min(v for k, v in paper.items() if "replaces" in k and not isinstance(v, str)) == 170
    assert {name.split(":")[0] for name in paper} == set(ES_SCALING.presets["paper"].sizes)  # pyright: ignore


def test_times_come_back_from_the_numbers_of_a_result():
    measured, _ = claims.numbers({"FC 32": times(1.0, 80.0)}, (8.0, 0.045))
    back = claims.times_of(measured, "FC 32")
    assert [*back.flip, *back.ideal, *back.core, *back.backprop] == pytest.approx([1.01, 2.02, 80.8, 0.0101])
