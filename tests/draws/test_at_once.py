"""What is made at once for a whole draw is to the bit what is made alone, and stays small."""

import pytest
import torch

from flipout.draws import at_once
from flipout.draws.at_once import Item, Roster
from flipout.draws.noise import NOISE, Stream, stream_starts
from flipout.draws.signs import sign_batches

ITEMS = (
    Item(11, (50, 13), True, ((0, 50), (1, 13))),
    Item(12, (64, 3, 3), True, ((0, 64), (1, 6))),
    Item(13, (129,), True, ((0, 129),)),
    Item(15, (), True, ()),
    Item(14, (8, 8), False, ((0, 8), (1, 8))),
    Item(11, (50, 13), False, ((0, 50), (1, 13))),  # tied to the first
)


@pytest.mark.parametrize("real", [torch.float32, torch.float64])
@pytest.mark.parametrize("about", [(7, 7, 0, 0, 0), (-3, 5, 0, 0, 0), (7, 7, 2, 3, 0), (2**62, -1, 1, 0, 2**31 + 5)])
@pytest.mark.parametrize("examples", [1, 6])
def test_it_is_what_is_made_alone(real: torch.dtype, about: tuple[int, ...], examples: int) -> None:
    seed, sign_seed, fold, base, first = about
    drawn = Roster(ITEMS).make(seed, sign_seed, fold, base, first, examples, real)
    assert drawn.noise.keys() == {11, 12, 13, 15}
    for item in ITEMS:
        if item.is_normal:
            (start,) = stream_starts(torch.tensor(seed), item.key, NOISE, base, 1, fold)
            assert torch.equal(drawn.noise[item.key], Stream(start, item.shape, real).normal())
        for dim, features in item.over:
            (alone,) = next(sign_batches(torch.tensor(sign_seed), item.key, [(dim, features)], first, examples, real))
            assert torch.equal(drawn.signs[item.key, dim], alone)


@pytest.mark.parametrize("real", [torch.float32, torch.float64])
@pytest.mark.parametrize("base", [0, 3])
def test_several_bases_are_what_is_made_alone(real: torch.dtype, base: int) -> None:
    drawn = Roster(ITEMS).make(7, 5, 2, base, 30, 6, real, 4)
    assert drawn.bases == 4
    for item in ITEMS:
        if item.is_normal:
            start = stream_starts(torch.tensor(7), item.key, NOISE, base, 4, 2)
            assert torch.equal(drawn.noise[item.key], Stream(start, item.shape, real).normal())
        for dim, features in item.over:
            (alone,) = next(sign_batches(torch.tensor(5), item.key, [(dim, features)], 30, 6, real))
            assert torch.equal(drawn.signs[item.key, dim], alone)


def test_noise_of_many_bases_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_once, "MOST", 4000)
    drawn = Roster(ITEMS).make(7, 7, 0, 0, 0, 20, torch.float32, 10)
    assert drawn.bases == 10
    assert drawn.signs
    assert not drawn.noise


def test_a_batch_without_examples_has_noise_alone() -> None:
    drawn = Roster(ITEMS).make(7, 7, 0, 0, 0, 0, torch.float32)
    assert not drawn.signs
    assert drawn.noise.keys() == {11, 12, 13, 15}


def test_no_more_than_a_bound_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_once, "MOST", 2000)
    drawn = Roster(ITEMS).make(7, 7, 0, 0, 0, 20, torch.float32)
    assert sum(noise.numel() for noise in drawn.noise.values()) <= 2000
    assert sum(sign.numel() for sign in drawn.signs.values()) <= 2000
    assert drawn.signs
    assert drawn.noise


def test_few_batch_sizes_are_remembered() -> None:
    roster = Roster(ITEMS)
    for examples in range(1, 60):
        roster.make(7, 7, 0, 0, 0, examples, torch.float32)
    assert len(roster.signs) <= 16


@pytest.mark.parametrize("examples", [7, 1500], ids=["few", "many"])
def test_several_bases_are_those_made_one_by_one(examples: int) -> None:
    together = Roster(ITEMS).make(7, 5, 1, 3, 40, examples, torch.float32, 4)
    assert (together.base, together.bases) == (3, 4)
    for i in range(4):
        alone = Roster(ITEMS).make(7, 5, 1, 3 + i, 40, examples, torch.float32)
        assert together.signs.keys() == alone.signs.keys()
        assert all(torch.equal(together.signs[name], sign) for name, sign in alone.signs.items())
        assert all(torch.equal(together.noise[key][i], noise) for key, noise in alone.noise.items())


def test_many_signs_are_what_is_made_alone() -> None:
    drawn = Roster(ITEMS).make(7, 5, 0, 0, 3, 1500, torch.float64)
    for key, dim in drawn.signs:
        features = drawn.signs[key, dim].shape[1]
        (alone,) = next(sign_batches(torch.tensor(5), key, [(dim, features)], 3, 1500, torch.float64))
        assert torch.equal(drawn.signs[key, dim], alone)
