"""Which base an example has, and the rows that complete its group."""

from dataclasses import replace

import pytest
import torch

import flipout
from flipout._perturbation import Perturbation
from flipout.draws.draw import Draw
from flipout.schemes.bases import bases_of, delta_of_each_example, missing_rows, pad_rows


def perturbation(first: int, examples: int, **draw) -> Perturbation:
    parameter, noise = torch.randn(3, 2, dtype=torch.float64), flipout.Gaussian(0.3)
    place = (Draw(torch.tensor(5), **draw), 11, first, examples, torch.float64)
    return Perturbation(parameter, noise.spread(parameter), noise, *place)


@pytest.mark.parametrize(
    ("first", "examples", "expected"),
    [(0, 8, (0, 2, 4)), (3, 2, (0, 2, 4)), (4, 4, (1, 1, 4)), (5, 8, (1, 3, 4)), (9, 0, (0, 1, 0))],
)
def test_bases_of_examples(first: int, examples: int, expected: tuple[int, int, int]) -> None:
    assert bases_of(perturbation(first, examples), 4) == expected
    assert bases_of(perturbation(first, examples, group=4), 7) == expected  # the draw's group goes first
    assert bases_of(perturbation(first, examples), None) == (0, 1, 0)


@pytest.mark.parametrize(("first", "examples"), [(0, 8), (3, 6), (5, 8), (4, 2)])
def test_each_example_has_the_delta_of_its_group(first: int, examples: int) -> None:
    p = perturbation(first, examples)
    deltas = delta_of_each_example(p, 4).expand(examples, -1, -1)
    for example in range(examples):
        torch.testing.assert_close(deltas[example], p.delta((first + example) // 4))


@pytest.mark.parametrize("rows", [1, 3])
def test_padding_completes_the_first_and_the_last_group(rows: int) -> None:
    p = replace(perturbation(3, 6), draw=Draw(torch.tensor(5), rows=rows))
    bases = bases_of(p, 4)
    missing = missing_rows(p, bases)
    assert missing == (3 * rows, 3 * rows)
    x = torch.randn(6 * rows, 2)
    padded = pad_rows(x, missing)
    assert len(padded) == bases[1] * 4 * rows
    assert torch.equal(padded[3 * rows : -3 * rows], x)
    assert pad_rows(x, (0, 0)) is x
