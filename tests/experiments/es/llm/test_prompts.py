"""Prompts and the checkers of what is written after them."""

from typing import Any

import torch

from flipout.experiments.es.llm.prompts import ends_within, json_prompts, json_with, random_prompts
from flipout.experiments.lora.questions import WORDS


class Echo:
    """A tokenizer whose ids are the letters of the text."""

    def apply_chat_template(self, messages: list[dict[str, str]], **how: Any) -> list[int]:
        return [ord(letter) for letter in messages[0]["content"]]


JSON = {'{"a": 1}': True, '```json\n{"a": 1}\n```': True, '{"b": 1}': False, "[1]": False, '{"a": 1': False, "": False}


def test_one_json_object_with_the_keys_of_its_prompt() -> None:
    checker = json_with([("b", "c"), ("a",)])
    assert {text: checker(text, 1) for text in JSON} == JSON
    assert checker('{"c": 1, "b": 2}', 0)


def test_a_text_that_ends_in_time() -> None:
    checker = ends_within(2, 3, 9)
    texts = {(9,): False, (1, 9): True, (1, 1, 9): True, (1, 1, 1, 9): False, (1, 1): False}
    assert {text: checker(text, 0) for text in texts} == texts


def test_held_out_words_are_not_trained_on() -> None:
    train, test = ({tuple(ids) for ids in json_prompts(Echo(), 1000, held_out)[0]} for held_out in (False, True))
    assert len(train) == len(test) == 96
    assert not train & test


def test_prompts_ask_for_their_keys() -> None:
    prompts, wanted = json_prompts(Echo(), 30, True)
    texts = ["".join(map(chr, ids)) for ids in prompts]
    assert len(texts) == len(wanted) == 30
    assert all(", ".join(keys) in text for text, keys in zip(texts, wanted, strict=True))


def test_prompts_of_random_tokens() -> None:
    first, same = (random_prompts(5, torch.Generator().manual_seed(3)) for _ in range(2))
    assert first == same
    assert all(4 <= token < WORDS for prompt in first for token in prompt)
