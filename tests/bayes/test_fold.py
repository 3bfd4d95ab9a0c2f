"""Folded samples are the rows of one held draw, however they are split into passes."""

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.bayes._fold import Block, Fold
from flipout.errors import InvalidArgument, InvalidInput

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
SAMPLES = 6


def network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return flipout.perturb(model, flipout.Gaussian(0.3))


def folded(model: nn.Module, joint: bool, chunk: int | None, group: int = 2, antithetic: bool = False) -> Tensor:
    fold = Fold(model, X, joint, chunk, group, 0, seed=7, antithetic=antithetic)
    with fold.running():
        return torch.cat([torch.cat(list(fold.outputs(block, 0, SAMPLES))) for block in fold.blocks], 1).detach()


@pytest.mark.parametrize("chunk", [1, 3, 5, 10, None])
@pytest.mark.parametrize("joint", [False, True])
def test_samples_are_rows_of_one_held_draw(joint: bool, chunk: int | None) -> None:
    model = network()
    # Jointly, the rows of all inputs are one example of the draw; else each row is.
    rows, group = (len(X), 2) if joint else (1, 2 * len(X))
    with flipout.hold(model, seed=7, rows=rows, group=group):
        truth = model(X.repeat(SAMPLES, 1)).unflatten(0, (SAMPLES, len(X)))
    torch.testing.assert_close(folded(model, joint, chunk), truth.detach())


def test_inputs_beyond_the_chunk_come_in_blocks() -> None:
    assert Fold(network(), X, False, 2, 2, 0, seed=7).blocks == [Block(0, 2), Block(2, 2), Block(4, 1)]
    assert Fold(network(), X, False, None, 2, 0, seed=7).blocks == [Block(0, 5)]


@pytest.mark.parametrize("joint", [False, True])
def test_a_mirror_image_follows_its_sample(joint: bool) -> None:
    model = flipout.perturb(nn.Linear(4, 3), flipout.Gaussian(0.3))  # linear, so that images lie around the mean
    found = folded(model, joint, None, antithetic=True)
    mean = model.eval()(X).detach()
    torch.testing.assert_close(found[0::2] - mean, mean - found[1::2])
    assert (found[0] - found[2]).abs().min() > 0


def test_noise_that_is_not_symmetric_is_independent() -> None:
    model = flipout.perturb(nn.Linear(4, 3), flipout.DropConnect(0.3), scheme="independent")
    fold = Fold(model, X, False, None, 4, 0, seed=7)
    assert (fold.scheme, fold.group) == ("independent", 1)


def test_modes_are_put_back() -> None:
    model = network()
    model.get_submodule("1").eval()
    folded(model, False, None)
    assert [part.training for part in model.children()] == [True, False, True]


def test_without_a_seed_torch_decides() -> None:
    seeds = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        seeds.append(Fold(network_of(seed), X, False, None, 2, 0, seed=None).seed)
    assert seeds[0] == seeds[1] != seeds[2]


def network_of(seed: int) -> nn.Module:
    """Return a network, with torch's generator seeded after its initialisation."""
    model = network()
    torch.manual_seed(seed)
    return model


def test_bad_input_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"group=3, antithetic=True.*Use group=4"):
        Fold(network(), X, False, None, 3, 0, seed=7, antithetic=True)
    with pytest.raises(InvalidInput, match="there are no inputs"):
        Fold(network(), X[:0], False, None, 2, 0, seed=7)
    with pytest.raises(InvalidInput, match=r"same number of inputs in dimension 0.*here 5"):
        Fold(network(), (X, X[:3]), False, None, 2, 0, seed=7)
