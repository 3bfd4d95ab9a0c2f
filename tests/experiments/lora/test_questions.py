"""Questions: the synthetic ones, and ARC where it is."""

import pytest
import torch

from flipout import errors
from flipout.experiments.lora.questions import KEYS, SEEN, arc, batched, synthetic


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def keys(questions) -> torch.Tensor:
    prompt = questions.input_ids[:, 0, :8]
    return prompt[(prompt >= 4) & (prompt < 20)] - 4


def test_the_answer_belongs_to_the_word_of_the_prompt() -> None:
    found = synthetic(200, noise=0.0, unseen=False, generator=generator())
    right = found.right()
    assert torch.equal(right["labels"][:, 8] - 20, keys(found))
    assert int(keys(found).max()) < SEEN
    assert found.items == 400
    noisy = synthetic(2000, noise=0.25, unseen=False, generator=generator())
    wrong = (noisy.right()["labels"][:, 8] - 20 != keys(noisy)).double().mean()
    assert 0.2 < float(wrong) < 0.3


def test_the_shift_has_words_that_nobody_has_seen() -> None:
    found = synthetic(200, noise=0.0, unseen=True, generator=generator())
    assert int(keys(found).min()) >= SEEN
    assert int(keys(found).max()) == KEYS - 1


def test_questions_of_unequal_length_are_padded() -> None:
    found = batched([[1, 5], [1, 6, 7]], [[[8], [9, 10]], [[11]]], [1, 0], "here")
    assert found.input_ids[0].tolist() == [[1, 5, 8, 0], [1, 5, 9, 10]]
    assert found.labels[0].tolist() == [[-100, -100, 8, -100], [-100, -100, 9, 10]]
    assert found.attention_mask[1].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert found.labels[1, 1].tolist() == [-100] * 4
    assert found[slice(1)].right()["input_ids"].tolist() == [[1, 5, 9, 10]]
    assert len(found) == 2


def test_batches_are_as_long_as_their_longest_sequence() -> None:
    found = batched([[1, 5], [1, 6, 7], [1]], [[[8]], [[9, 10], [3]], [[4]]], [0, 1, 0], "here")
    assert found.by_length().tolist() == [2, 0, 1]
    assert found[[0, 2]].right()["input_ids"].tolist() == [[1, 5, 8], [1, 4, 0]]
    assert {name: tuple(value.shape) for name, value in found.right().items()} == {
        "input_ids": (3, 4),  # the wrong choice of the second question is longer
        "attention_mask": (3, 4),
        "labels": (3, 4),
    }


def words(text: str, **_: bool) -> dict[str, list[int]]:
    return {"input_ids": [1 + len(word) for word in text.split()]}


def test_arc_where_it_is(real_data) -> None:
    found = arc("challenge", "test", words, 20, generator())
    assert len(found) == 20
    assert "checksums verified" in found.source
    assert bool((found.answer < found.input_ids.shape[1]).all())
    assert not torch.equal(found.input_ids, arc("challenge", "test", words, 20, generator(1)).input_ids)


def test_arc_elsewhere_says_what_is_missing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FLIPOUT_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(errors.DataError, match=r"qa/arc-easy\.train\.jsonl\.xz"):
        arc("easy", "train", words, None, generator())
