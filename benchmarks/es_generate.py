"""Texts of a population against plain generation of the same batch, on one CPU core, with a small Llama in fp32."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from flipout.es import EvolutionStrategy

from .record import Row, interleaved, rows

MEMBERS, PROMPTS, LENGTH, TOKENS = 16, 4, 12, 16
WIDTH, LAYERS, VOCABULARY = 256, 4, 4096
SCHEMES: tuple[Any, ...] = ("rank_one", "low_rank", "flipout")


def run() -> Iterator[Row]:
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield from _compare()
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, cores)


@torch.no_grad()
def _compare() -> Iterator[Row]:
    prompts, plain = torch.randint(VOCABULARY, (PROMPTS, LENGTH)), llama()
    repeated, mask = prompts.repeat(MEMBERS, 1), torch.ones(MEMBERS * PROMPTS, LENGTH, dtype=torch.int64)
    options = {"max_new_tokens": TOKENS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    runs: dict[str, Callable[[], object]] = {
        "plain": lambda: plain.generate(input_ids=repeated, attention_mask=mask, **options)
    }
    for scheme in SCHEMES:
        runs[scheme] = _generation(scheme, prompts)
    measured = interleaved(runs, seconds=20.0, least=9, clock=time.process_time)
    case = (
        f"es generate, Llama {LAYERS} × {WIDTH}, {MEMBERS} members × {PROMPTS} prompts, {TOKENS} tokens, processor time"
    )
    yield from rows(case, measured, dict.fromkeys(SCHEMES, "plain"))


def _generation(scheme: Any, prompts: torch.Tensor) -> Callable[[], object]:
    search = EvolutionStrategy(
        llama(),
        None,
        population=MEMBERS,
        group=MEMBERS,
        std=0.01,
        scheme=scheme,
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1),
    )

    def run() -> object:
        search.generation += 1
        return search.ask()[0].generate(prompts, TOKENS, eos_token_id=[], pad_token_id=0)

    return run


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=3 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=128,
            tie_word_embeddings=True,
        )
    ).eval()
