"""Prompts for texts with a property that a program checks: that they end in time, or that they are JSON."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...lora.questions import WORDS

_WORDS = """
apple bicycle candle dolphin elephant forest guitar hammer island jacket kettle lemon
mountain needle ocean piano quilt river saddle tiger umbrella violin window yacht
anchor bridge castle desert engine feather glacier harbor insect jungle knife lantern
mirror notebook orchard pencil rabbit spoon tunnel valley whistle zebra basket camera
""".split()  # noqa: SIM905
_KEYS = (("name", "colour"), ("name", "size"), ("name", "weight", "use"), ("name", "place"))


def json_prompts(tokenizer: Any, count: int, held_out: bool) -> tuple[list[list[int]], list[tuple[str, ...]]]:
    """Return requests for a JSON object, and the keys that each asks for. Every other word is held out."""
    words = _WORDS[1::2] if held_out else _WORDS[::2]
    wanted = [(keys, word) for keys in _KEYS for word in words][:count]
    asked = [
        f"Answer with one JSON object and nothing else. Describe this with the keys {', '.join(keys)}: {word}"
        for keys, word in wanted
    ]
    messages = [[{"role": "user", "content": text}] for text in asked]
    prompts = [tokenizer.apply_chat_template(m, add_generation_prompt=True, return_dict=False) for m in messages]
    return prompts, [keys for keys, _ in wanted]


def random_prompts(count: int, generator: torch.Generator) -> list[list[int]]:
    """Return prompts for a model with random weights."""
    return [torch.randint(4, WORDS, (6,), generator=generator).tolist() for _ in range(count)]


def json_with(wanted: Sequence[tuple[str, ...]]) -> Callable[[str, int], bool]:
    """Return a checker: a text is one JSON object with the keys that its prompt asks for. A code fence is allowed."""

    def is_right(text: str, prompt: int) -> bool:
        try:
            found = json.loads(text.strip().removeprefix("```json").removesuffix("```"))
        except ValueError:
            return False
        return isinstance(found, dict) and found.keys() == set(wanted[prompt])

    return is_right


def ends_within(shortest: int, longest: int, end: int) -> Callable[[Sequence[int], int], bool]:
    """Return a checker of token ids: the text ends, after this many tokens at least and at most."""
    return lambda ids, prompt: shortest <= len(ids) <= longest and ids[-1] == end
