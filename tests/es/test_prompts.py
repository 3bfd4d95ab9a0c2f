"""Prompts in every form become ids with padding on the left."""

from typing import Any

import pytest
import torch

from flipout import errors
from flipout.es._prompts import checked_prompts

CPU = torch.device("cpu")


def test_lists_are_padded_on_the_left() -> None:
    ids, mask = checked_prompts([[3], torch.tensor([4, 5, 6])], 9, 10, CPU)
    assert ids.tolist() == [[9, 9, 3], [4, 5, 6]]
    assert mask.tolist() == [[0, 0, 1], [1, 1, 1]]


def test_a_tensor_has_no_padding_unless_a_mask_says_so() -> None:
    ids = torch.tensor([[1, 2], [3, 4]])
    assert checked_prompts(ids, 0, None, CPU).mask.tolist() == [[1, 1], [1, 1]]
    encoding = {"input_ids": ids, "attention_mask": [[0, 1], [1, 1]]}
    assert checked_prompts(encoding, 0, None, CPU).mask.tolist() == [[0, 1], [1, 1]]


def test_a_tokenizer_that_did_not_pad_returns_masks_of_its_own_lengths() -> None:
    ids, mask = checked_prompts({"input_ids": [[3], [4, 5]], "attention_mask": [[1], [1, 1]]}, 9, 10, CPU)
    assert ids.tolist() == [[9, 3], [4, 5]]
    assert mask.tolist() == [[0, 1], [1, 1]]


WRONG: dict[str, tuple[Any, str]] = {
    "nothing": ([], "expected token ids"),
    "an empty prompt": ([[1], []], "is no prompt"),
    "texts": (["a", "b"], "is no prompt"),
    "a number": (3, "got int"),
    "one dimension": (torch.tensor([1, 2]), r"shape \(2,\)"),
    "floats": (torch.ones(1, 2), "torch.float32"),
    "another vocabulary": ([[1, 10]], "0 to 9"),
    "a negative id": ([[-1]], "from -1"),
    "padding on the right": (
        {"input_ids": torch.ones(1, 2).long(), "attention_mask": [[1, 0]]},
        "padding_side = 'left'",
    ),
    "a hole": ({"input_ids": torch.ones(1, 3).long(), "attention_mask": [[1, 0, 1]]}, "on the left"),
    "another mask": ({"input_ids": torch.ones(1, 2).long(), "attention_mask": [[1]]}, "equal shapes"),
    "no ids": ({"ids": [[1]]}, "got NoneType"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_prompts(name: str) -> None:
    prompts, said = WRONG[name]
    with pytest.raises(errors.InvalidInput, match=said):
        checked_prompts(prompts, 0, 10, CPU)
