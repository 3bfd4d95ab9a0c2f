"""Sequences come out in the form in which they went in, and a wrong state is refused."""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from flipout.errors import InvalidInput
from flipout.ops.sequences import Sequences

X = torch.randn(3, 5, 2)


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_batch_comes_first_and_goes_back(batch_first: bool) -> None:
    x = X if batch_first else X.transpose(0, 1)
    taken = Sequences.of(x, batch_first)
    assert torch.equal(taken.x, X)
    assert taken.alive is None
    outputs = taken.outputs(taken.x)
    assert isinstance(outputs, torch.Tensor)
    assert torch.equal(outputs, x)


def test_a_single_sequence() -> None:
    taken = Sequences.of(X[0], batch_first=False)
    assert taken.x.shape == (1, 5, 2)
    assert torch.equal(taken.outputs(taken.x), X[0])  # pyright: ignore[reportArgumentType]
    assert taken.states((torch.zeros(2, 1, 4),))[0].shape == (2, 4)


def test_packed_sequences_are_alive_until_they_end() -> None:
    lengths = (2, 5, 3)
    packed = pack_sequence([row[:length] for row, length in zip(X, lengths, strict=True)], enforce_sorted=False)
    taken = Sequences.of(packed, batch_first=False)
    assert taken.alive is not None
    assert taken.alive.sum(0).flatten().tolist() == list(lengths)
    outputs = taken.outputs(taken.x)
    assert isinstance(outputs, PackedSequence)
    assert torch.equal(outputs.data, packed.data)
    assert torch.equal(outputs.batch_sizes, packed.batch_sizes)


def test_wrong_packs_and_states_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"PackedSequence of 4 rows with batch_sizes for 5"):
        Sequences.of(PackedSequence(torch.zeros(4, 2), torch.tensor([3, 2])), batch_first=True)
    with pytest.raises(InvalidInput, match=r"rnn: hx of shapes \[\(1, 4, 6\)\]; expected \[\(1, 3, 6\)\]"):
        Sequences.of(X, batch_first=True).check_state("rnn", [torch.zeros(1, 4, 6)], 1, [6])
