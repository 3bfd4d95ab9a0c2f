"""The draw: its seeds, and how they are read from torch's global generator."""

import torch
from torch import nn

import flipout
from flipout.draws.draw import fresh_seed, from_seed


def test_a_sign_seed_moves_even_if_the_seed_is_on_the_device_already():
    draw = from_seed(5, torch.tensor(1), torch.device("meta"))
    moved = draw.to(torch.device("meta")).sign_seed
    assert moved is not None
    assert moved.device.type == "meta"


def network() -> nn.Module:
    return flipout.perturb(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), flipout.Gaussian(0.5))


def test_the_global_generator_is_read_once_per_draw_and_never_reset() -> None:
    model, x = network(), torch.randn(5, 3)
    before = torch.get_rng_state()
    model(x).sum().backward()
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    fresh_seed(torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), after)
    assert not torch.equal(before, after)


def test_the_global_generator_is_not_read_without_a_draw() -> None:
    model, x = network(), torch.randn(5, 3)
    before = torch.get_rng_state()
    with flipout.hold(model, seed=3):
        model(x)
    model.eval()(x)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_manual_seed_makes_a_run_repeatable() -> None:
    runs = []
    for _ in range(2):
        torch.manual_seed(11)
        model, x = network(), torch.randn(5, 3)
        runs.append([model(x), model(x), torch.rand(2)])
    first, second = runs
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])
