"""Dropout masks keep the mean, and a probability out of range is refused by its name."""

import pytest
import torch

from flipout.errors import InvalidArgument
from flipout.regularizers._masks import check_probabilities, draw_mask
from tests.statistics import assert_probability


def test_a_mask_is_0_or_one_over_the_share_that_stays() -> None:
    mask = draw_mask(0.2, torch.zeros(3, dtype=torch.float64), (100, 200))
    assert mask.dtype == torch.float64
    assert set(mask.unique().tolist()) == {0.0, 1 / 0.8}
    assert_probability(int((mask == 0).sum()), mask.numel(), 0.2)


def test_probabilities() -> None:
    assert check_probabilities(object(), p=0, q=0.5) == [0.0, 0.5]
    for p in (1, -0.1, "0.5", None):
        with pytest.raises(InvalidArgument, match=rf"object: q={p!r} given; expected a probability in \[0, 1\)"):
            check_probabilities(object(), p=0.5, q=p)
