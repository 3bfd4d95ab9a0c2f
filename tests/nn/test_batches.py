"""Which input of a call has the examples."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

import flipout
from flipout import errors
from flipout.nn.batches import Batch, disagreeing, sizes_of, tensors_in, tensors_with_rows, told_batch


def of(*shape: int) -> Tensor:
    return torch.zeros(shape)


def shapes(tensors: list[Tensor]) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in tensors]


def test_the_batch_is_found_by_its_place_in_the_call() -> None:
    batch = Batch(1, 0)
    assert batch.rows((of(7), of(4, 3)), {}) == 4
    assert batch.rows((of(7), [of(5, 3), of(9)]), {}) == 5  # inside lists too
    assert batch.rows((of(7),), {}) is None
    assert Batch(0, 1).rows((of(7),), {}) is None  # no such dimension


def test_the_batch_is_found_by_its_keyword() -> None:
    batch = Batch(0, 0, "input_ids")
    assert batch.rows((), {"positions": of(1, 9), "input_ids": of(4, 9)}) == 4
    # Without the keyword all tensors have to agree, but for positions with a single row.
    assert batch.rows((), {"positions": of(1, 9), "embeddings": of(4, 9, 2)}) == 4
    assert batch.rows((), {"positions": of(1, 9)}) == 1
    assert batch.rows((), {"mask": of(3, 9), "embeddings": of(4, 9, 2)}) is None
    assert batch.rows((of(4, 9),), {}) == 4  # given by place after all


def test_tensors_are_listed_in_the_order_of_the_call() -> None:
    x, y, z = of(1), of(2), of(3)
    found = tensors_in(((x, [y, None]), {"z": z, "flag": True}))
    assert shapes(found) == [(1,), (2,), (3,)]


def test_what_is_broadcast_has_no_examples() -> None:
    assert shapes(tensors_with_rows((of(4, 9), of(1, 9), of(1, 1, 9)))) == [(4, 9)]
    assert shapes(tensors_with_rows((of(1, 9), of(1, 5)))) == [(1, 9), (1, 5)]  # a batch of one example
    assert shapes(tensors_with_rows((of(4, 9), torch.tensor(3.0)))) == [(4, 9)]
    assert tensors_with_rows((of(4, 9), pack_sequence([of(3, 2), of(2, 2)]))) == []


def test_sizes_of_several_dimensions() -> None:
    assert sizes_of([of(4, 9), of(5)], (0, 1)) == {4, 5, 9}
    assert sizes_of([of(5)], (1,)) == set()


def test_a_vector_beside_a_batch_is_not_the_batch() -> None:
    assert told_batch([of(9), of(4, 9)], 0) == 1
    assert told_batch([of(9)], 0) == 0
    assert told_batch([of(9), of(8, 2)], 1) == 1
    assert told_batch([of(9)], 1) is None


@pytest.mark.parametrize(
    ("tensors", "rows", "found"),
    [
        ([of(4, 9), of(9)], 4, (9,)),  # sequences and positions: 9 may be the time steps of 4 examples, or the reverse
        ([of(4, 9), of(9)], 9, (4, 9)),
        ([of(4, 9), of(4)], 4, None),
        ([of(4, 9), of(9, 9)], 4, None),  # a square mask counts no examples
        ([of(4, 9), of(2, 4, 8)], 4, None),  # states (layers, N, features) beside the first input
    ],
)
def test_inputs_that_disagree_are_found(tensors: list[Tensor], rows: int, found: tuple[int, ...] | None) -> None:
    other = disagreeing(tensors, rows)
    assert (None if other is None else tuple(other.shape)) == found


class Turned(nn.Module):
    """A time-major layer inside of a model, whose inputs may be positions too."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, *inputs: Tensor, x: Tensor | None = None) -> Tensor:
        x = next(value for value in (x, *inputs) if value is not None and value.dim() == 3)
        return self.fc(x.transpose(0, 1)).transpose(0, 1)


X, POSITIONS = torch.randn(4, 9, 5), torch.arange(9)


@pytest.mark.parametrize(
    ("batch_dim", "args", "kwargs"),
    [(0, (X,), {}), (1, (X.transpose(0, 1),), {}), (0, (POSITIONS, X), {}), (0, (), {"positions": POSITIONS, "x": X})],
)
def test_a_layer_with_other_rows_than_the_batch_that_was_named_is_refused(
    batch_dim: int, args: Any, kwargs: Any
) -> None:
    model = flipout.perturb(Turned(), flipout.Gaussian(0.3), batch_dim=batch_dim)
    kwargs.pop("positions", None)
    with pytest.raises(errors.ExampleCount, match=rf"9 rows, .* called with 4 in dimension {batch_dim}\."):
        model(*args, **kwargs)
    flipout.freeze(model)
    flipout.perturb(model, flipout.Gaussian(0.3), batch_dim={"fc": 1})  # by name it is believed
    model(*args, **kwargs)


@pytest.mark.parametrize("inputs", [(X, POSITIONS), (POSITIONS, X), (X, torch.randn(9, 5))])
def test_inputs_that_disagree_ask_for_the_batch(inputs: Any) -> None:
    model = flipout.perturb(Turned(), flipout.Gaussian(0.3))
    with pytest.raises(errors.ExampleCount, match=r"9 rows, .* do not agree .* perturb\(model, …, batch_dim=0\)"):
        model(*inputs)


def test_states_masks_and_single_rows_do_not_disagree() -> None:
    x, states, mask = torch.randn(4, 9, 5), torch.randn(2, 4, 5), torch.ones(9, 9)
    for beside in (states, mask, torch.zeros(1), torch.randn(1, 9, 5), torch.zeros(2, 30)):
        assert disagreeing(tensors_with_rows((x, beside)), 4) is None
    assert disagreeing([x, POSITIONS], 4) is POSITIONS  # also if the rows are those of the sequences: they may be time
    assert disagreeing([torch.randn(9, 4), torch.zeros(4)], 9) is not None  # lengths of time-major sequences
    assert disagreeing([mask], 9) is None
    assert tensors_with_rows((x, torch.zeros(1), torch.zeros(()))) == [x]
    assert len(tensors_with_rows((torch.zeros(1, 7), torch.zeros(7)))) == 2  # one sequence, and its positions
