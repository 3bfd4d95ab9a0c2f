"""Times of updates: ratios, prices, the paper's table, and processes that see the same members."""

from typing import Any

import pytest
import torch

from flipout.errors import InvalidArgument
from flipout.experiments.es.scaling import claims
from flipout.experiments.es.scaling.claims import PAPER, Times
from flipout.experiments.es.scaling.presets import ES_SCALING
from flipout.experiments.es.scaling.times import ScalingConfig, at_once, share
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import Progress
from flipout.experiments.running.results import MUST_HOLD, REPORTED

SMOKE: Any = ES_SCALING.presets["smoke"]


def times(flip: float, core: float, ideal: float = 2.0) -> Times:
    return Times(*([value, value * 1.02] for value in (flip, ideal, 0.01, core)))


def test_cores_replaced_and_their_price():
    several = {"FC 32": times(1.0, 50.0), "FC 512": times(1.0, 400.0), "ConvLe 1": times(1.0, 4000.0)}
    cores, cheaper, ideal, growth = claims.reported(several, device_price=8.0, core_price=0.4)
    assert {check.kind for check in (cores, cheaper, ideal, growth)} == {REPORTED}
    assert (cores.value, cores.holds) == (pytest.approx(50), True)
    assert (cheaper.value, cheaper.holds) == (pytest.approx(2.5), False)
    assert (ideal.value, ideal.holds) == (pytest.approx(2.0), True)
    assert (growth.value, growth.holds) == (pytest.approx(8.0), True)


def test_the_table_of_the_paper_is_beside_ours():
    numbers, paper = claims.numbers({name: times(1.0, 80.0) for name in PAPER}, (8.0, 0.045))
    assert paper.keys() <= numbers.keys()
    assert (paper["FC 2048: FlipES, seconds"], paper["ConvLe 1.5: 40 cores, seconds"]) == (1.86, 132.0)
    assert numbers["FC 32: 40 cores, seconds"] == pytest.approx(2.0, rel=0.02)
    assert numbers["FC 32: cores that the device replaces"] == pytest.approx(80)
    assert min(v for k, v in paper.items() if "replaces" in k and not isinstance(v, str)) == 170
    assert {name.split(":")[0] for name in paper} == set(ES_SCALING.presets["paper"].sizes)  # pyright: ignore


def test_processes_evaluate_the_members_of_the_device(tmp_path):
    training = SMOKE.sizes["FC 32"]
    with open_run(tmp_path, {"seed": 3, "device": "cpu"}, resume=False, progress=Progress()) as run:
        threads = torch.get_num_threads()
        seconds, fitness = share(training, 6, 2, 3)
        torch.set_num_threads(threads)
        here = at_once(training, 6, run)
    assert len(seconds) == 2
    torch.testing.assert_close(here, torch.tensor(fitness, dtype=torch.float64))
    assert len(set(fitness)) == 6
    check = claims.same_fitness({"one": 0.0, "other": 1.0})
    assert (check.kind, check.holds, check.value) == (MUST_HOLD, False, 1.0)


def test_bad_settings():
    with pytest.raises(InvalidArgument, match="rounds=1"):
        ScalingConfig(rounds=1)
    with pytest.raises(InvalidArgument, match="at least one size"):
        ScalingConfig(widths=())
