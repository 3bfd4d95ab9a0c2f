"""A text cut into streams and windows, and its loss read in several ways."""

import pytest
import torch

from flipout.errors import InvalidArgument
from flipout.experiments.language.models import RegularizedModel, Shape
from flipout.experiments.language.rows import CHARACTERS, WORDS
from flipout.experiments.language.walks import Walk, read, spelled_out, streams


@pytest.fixture
def model() -> RegularizedModel:
    return WORDS[0].model(11, Shape(embedding=6, hidden=6), 0)


def test_streams_are_parts_of_the_text_and_targets_follow():
    inputs, targets = streams(torch.arange(23), 4)
    assert inputs.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]
    assert torch.equal(targets, inputs + 1)
    with pytest.raises(InvalidArgument, match="9 streams of a text of 9 tokens"):
        streams(torch.arange(9), 9)


@pytest.mark.parametrize("window", [1, 2, 3, 7, 100])
def test_windows_lose_no_token(model, window):
    walk = Walk(model, torch.arange(30), 4, window)
    seen = torch.cat([walk.inputs.index_select(1, start + within) for start, within in walk.places], 1)
    assert torch.equal(seen, walk.inputs)
    assert walk.predicted == 28


def test_another_order_has_the_same_windows(model):
    walk = Walk(model, torch.arange(30), 4, 3)
    walk.begin(torch.tensor([1, 0]))
    assert [int(start) for start, _ in walk.places] == [3, 0, 6]
    assert [len(within) for _, within in walk.places] == [3, 3, 1]


def test_the_state_is_carried_and_forgotten(model):
    tokens = torch.randint(11, (41,))
    walk = Walk(model.eval(), tokens, 2, 5)
    walk.begin()
    whole = model(walk.inputs, model.start(2))
    parts = []
    for place in walk.places:
        output, loss = walk.evaluate(*place)
        walk.move(output, loss)
        parts.append(output.logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole.logits)
    torch.testing.assert_close(walk.state[1][1], whole.state[1][1])
    walk.begin()
    assert not any(part.any() for layer in walk.state for part in layer)


@pytest.mark.parametrize(
    "model",
    [
        *(row.model(11, Shape(embedding=6, hidden=6), 0) for row in WORDS),
        *(row.model(11, Shape(embedding=0, hidden=6, layers=1), 0) for row in CHARACTERS),
    ],
    ids=[*(row.name for row in WORDS), *(f"char-{row.name}" for row in CHARACTERS)],
)
def test_the_loss_is_that_of_one_token_after_the_other(model):
    model.train()
    tokens = torch.randint(11, (90,))
    slow = spelled_out(model, tokens)
    for window in (1, 7, 256):
        assert read(model, tokens, 1, window) == pytest.approx(slow, abs=1e-6)
    assert model.training


def test_cold_windows_know_nothing_of_those_before(model):
    tokens = torch.randint(11, (21,))
    apart = [spelled_out(model, tokens[at : at + 6]) for at in range(0, 20, 5)]
    assert read(model, tokens, 1, 5, carried=False) == pytest.approx(sum(apart) / 4, abs=1e-6)
    assert read(model, tokens, 2, 5, carried=False) == pytest.approx(sum(apart) / 4, abs=1e-6)
