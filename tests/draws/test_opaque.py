"""The custom op of a compiled graph draws the signs of an eager pass."""

import pytest
import torch

from flipout.draws.opaque import drawn_signs, is_only_compiling, packed_signs
from flipout.draws.signs import fused_signs, sign_batches

PLACE = (7, [0, 1], [5, 70], 3, 9, torch.float32)


def test_it_draws_the_eager_signs() -> None:
    expected = next(sign_batches(torch.tensor(2), 7, [(0, 5), (1, 70)], 3, 9, torch.float32))
    for drawn, alone in zip(drawn_signs(torch.tensor(2), *PLACE), expected, strict=True):
        assert torch.equal(drawn, alone)


def test_torch_accepts_its_registrations() -> None:
    torch.library.opcheck(drawn_signs, (torch.tensor(2), *PLACE))


@pytest.mark.parametrize("over", [[(0, 5), (1, 70)], [(2, 130)], [(0, 64), (1, 1)]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bits_that_a_graph_unpacks_are_the_eager_signs(over: list[tuple[int, int]], dtype: torch.dtype) -> None:
    found = fused_signs(torch.tensor(-2), 7, over, 2**33 + 3, 9, dtype)
    for drawn, alone in zip(found, next(sign_batches(torch.tensor(-2), 7, over, 2**33 + 3, 9, dtype)), strict=True):
        assert torch.equal(drawn, alone)


def test_torch_accepts_the_registration_of_bits() -> None:
    torch.library.opcheck(packed_signs, (torch.tensor(2), *PLACE[:5]))


def test_outside_of_a_compilation_nothing_is_compiling() -> None:
    assert not is_only_compiling()
