"""A Parameter under a draw: the same noise and signs, however they are asked for."""

from dataclasses import replace

import pytest
import torch

import flipout
from flipout._perturbation import Part, Perturbation, Signs
from flipout.draws.draw import Draw
from flipout.errors import AsymmetricDistribution

SEED = torch.tensor(5)
DIMS = [(0, 6), (1, 70)]


def perturbation(distribution: flipout.Distribution | None = None, **changes) -> Perturbation:
    parameter = torch.randn(6, 4, dtype=torch.float64)
    noise = flipout.Gaussian(0.3) if distribution is None else distribution
    usual = Perturbation(parameter, noise.spread(parameter), noise, Draw(SEED), 11, 2, 5, torch.float64)
    return replace(usual, **changes)


def test_signs_of_examples_do_not_depend_on_how_many_are_asked_for() -> None:
    whole = Signs(11, 2, 9, antithetic=False)
    r, s = whole.over(DIMS, SEED, torch.float32)
    assert (r.shape, s.shape) == ((9, 6), (9, 70))
    pieces = list(whole.runs(DIMS, SEED, torch.float32, 4))
    assert [len(piece[0]) for piece in pieces] == [4, 4, 1]
    assert torch.equal(torch.cat([piece[1] for piece in pieces]), s)
    for example in range(9):
        feature = torch.arange(6)
        alone = whole.at(0, torch.full_like(feature, example), feature, SEED, torch.float32)
        assert torch.equal(alone, r[example])


def test_antithetic_signs_are_negated_over_the_outputs_alone() -> None:
    r, s = Signs(11, 2, 9, antithetic=False).over(DIMS, SEED, torch.float32)
    negated, same = Signs(11, 2, 9, antithetic=True).over(DIMS, SEED, torch.float32)
    assert torch.equal(negated, -r)
    assert torch.equal(same, s)


def test_a_part_has_the_signs_and_the_noise_of_its_rows() -> None:
    whole = perturbation()
    part = replace(whole, part=Part(2, 3, 6))
    assert torch.equal(part.mean, whole.mean[2:5])
    assert torch.equal(part.delta(), whole.delta()[2:5])
    (r,) = whole.signs.over([(0, 6)], SEED, torch.float32)
    (of_part,) = part.signs.over([(0, 3)], SEED, torch.float32)
    assert torch.equal(of_part, r[:, 2:5])


def test_bases_and_rows_alone_are_those_of_the_whole() -> None:
    p = perturbation()
    deltas = p.deltas(1, 3)
    assert deltas.shape == (3, 6, 4)
    torch.testing.assert_close(p.delta(2), deltas[1])
    row, base = torch.tensor([0, 5, 3]), torch.tensor([1, 3, 2])
    torch.testing.assert_close(p.delta_rows(row, base, 1, 3), deltas[base - 1, row])
    assert not torch.equal(deltas[0], deltas[1])


def test_low_rank_factors_of_an_example_are_its_own() -> None:
    p = perturbation(flipout.Gaussian(0.3))
    left, right = p.factors(2, 2, 5)
    assert (left.shape, right.shape) == ((5, 6, 2), (5, 2, 4))
    row, example = torch.tensor([5, 0]), torch.tensor([4, 1])
    torch.testing.assert_close(p.left_rows(2, row, example), left[example, row])


def test_an_antithetic_draw_needs_symmetric_noise() -> None:
    mirrored = perturbation(draw=Draw(SEED, antithetic=True))
    assert torch.equal(mirrored.oriented(torch.ones(2)), -torch.ones(2))
    dropped = perturbation(flipout.DropConnect(0.3), draw=Draw(SEED, antithetic=True))
    with pytest.raises(AsymmetricDistribution, match="An antithetic draw of"):
        dropped.oriented(torch.ones(2))
