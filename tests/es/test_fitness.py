"""A fitness that is not one number per member is refused."""

from typing import Any

import pytest
import torch

from flipout import errors
from flipout.es._fitness import warn_if_equal
from tests.es.toys import strategy


@pytest.mark.parametrize("shape", [(), (23,), (24, 1), (12, 2)])
def test_fitness_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    evolution = strategy(lambda population: torch.zeros(shape))
    with pytest.raises(errors.InvalidInput, match=r"fitness\(population\).*expected \(24,\)"):
        evolution.step()
    with pytest.raises(errors.InvalidInput, match=r"tell\(fitness\).*expected \(24,\)"):
        evolution.tell(torch.zeros(shape))
    assert evolution.generation == 0


@pytest.mark.parametrize("wrong", [None, "good", [None] * 24])
def test_fitness_that_is_no_number(wrong: Any) -> None:
    with pytest.raises(errors.InvalidInput, match="expected 24 numbers"):
        strategy(lambda population: wrong).step()


def test_complex_fitness_is_refused() -> None:
    """torch would drop the imaginary parts with a warning."""
    evolution = strategy(lambda population: torch.ones(population.size, dtype=torch.complex64))
    with pytest.raises(errors.InvalidInput, match=r"fitness\(population\): got complex numbers; expected 24 real"):
        evolution.step()
    with pytest.raises(errors.InvalidInput, match=r"tell\(fitness\): got complex numbers; expected 24 real"):
        evolution.tell([1j] * 24)
    assert evolution.generation == 0


@pytest.mark.parametrize("antithetic", [False, True])
def test_members_that_are_all_as_fit_are_noticed_once(antithetic: bool) -> None:
    evolution = strategy(lambda population: torch.full((population.size,), 0.1), antithetic=antithetic)
    with pytest.warns(
        RuntimeWarning, match=r"All 24 members have fitness 0\.1: there is no direction to go in"
    ) as said:
        evolution.run(3)
    assert len(said) == 1


def test_one_member_and_members_that_differ_are_not_warned_of() -> None:
    fitness = torch.zeros(24)
    fitness[3] = 1.0
    evolution = strategy(None)
    evolution.tell(fitness)
    evolution.tell(torch.ones(24))  # such as the largest reward that there is
    warn_if_equal(torch.zeros(15), 0.1)  # so few may be equal by chance
