"""The place of a shard in its Parameter. Tests with several ranks stand in tests/scaling."""

import pytest
import torch

from flipout._shards import Shard, held_here, refuse_shards, sharded
from tests.networks import mlp

FULL = torch.arange(24).view(4, 6)


def test_a_plain_tensor_is_no_shard() -> None:
    assert not sharded(FULL)
    assert Shard.of(FULL) is None
    assert held_here(FULL) is FULL
    refuse_shards(mlp(), "Anything", "Nothing to do")


@pytest.mark.parametrize(("offset", "shape"), [((2, 0), (2, 6)), ((0, 4), (4, 2)), ((1, 3), (2, 2)), ((4, 0), (0, 6))])
def test_parts_and_elements(offset: tuple[int, int], shape: tuple[int, int]) -> None:
    shard = Shard(None, (), (4, 6), shape, offset)
    rows, columns = (slice(first, first + size) for first, size in zip(offset, shape, strict=True))
    assert torch.equal(shard.elements(torch.device("cpu")), FULL[rows, columns])
    assert torch.equal(shard.part(FULL), FULL[rows, columns])
    assert torch.equal(shard.part(FULL[:1]), FULL[:1, columns])  # broadcasts along the rows
    assert torch.equal(shard.part(FULL[:, :1]), FULL[rows, :1])
    assert torch.equal(shard.part(FULL[0]), FULL[0, columns])
    assert shard.part(torch.tensor(3)) == 3
