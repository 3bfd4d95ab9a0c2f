"""Texts of a population on one GPU against plain generation of as many rows, in bf16: a Llama of SmolLM2-135M's size.

The weights are random. A share is the time of plain generation over the population's, in the same form: both by one
call of the model for each token, or both by replays of one graph, which is captured inside the timed call.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from flipout.es import EvolutionStrategy
from flipout.es._decode import Sampling, continue_prompts
from flipout.es._prompts import checked_prompts

from .gpu import timed
from .record import Row, interleaved, rows

SCHEMES: tuple[Any, ...] = ("rank_one", "low_rank")
GREEDY = Sampling(False, 1.0, None)


class Setting(NamedTuple):
    device: str = "cuda"
    members: int = 512
    prompts: int = 2
    length: int = 32
    tokens: int = 64
    width: int = 576
    inner: int = 1536
    layers: int = 30
    heads: int = 9
    groups: int = 3
    vocabulary: int = 49152
    seconds: float = 60
    least: int = 3


def run() -> Iterator[Row]:
    yield from measured(Setting())


@torch.no_grad()
def measured(setting: Setting) -> Iterator[Row]:
    prompts = torch.randint(setting.vocabulary, (setting.prompts, setting.length), device=setting.device)
    plain, searches = llama(setting), {scheme: _search(setting, scheme) for scheme in SCHEMES}
    size = f"{setting.members} members × {setting.prompts} prompts, {setting.tokens} tokens"
    case = f"es generate, Llama {setting.layers} × {setting.width}, {size}"
    for form, captured in (("", False), (", captured", True)):
        runs: dict[str, Callable[[], object]] = {"plain": lambda c=captured: _plain(setting, plain, prompts, c)}
        if not captured:
            runs["plain by transformers"] = lambda: _by_transformers(setting, plain, prompts)
        for scheme, search in searches.items():
            runs[scheme] = lambda s=search, c=captured: _population(setting, s, prompts, c)
        runs = {name: timed(call) if setting.device == "cuda" else call for name, call in runs.items()}
        found = interleaved(runs, seconds=setting.seconds, least=setting.least)
        others = [name for name in runs if name != "plain"]
        yield from rows(f"{case}{form}", found, dict.fromkeys(others, "plain"), dtype="bfloat16")
        shares = {name: [a / b for a, b in zip(found["plain"], found[name], strict=True)] for name in others}
        yield from rows(f"{case}{form}, share of plain", shares, {}, what="ratio", dtype="bfloat16")


def _plain(setting: Setting, model: Any, prompts: torch.Tensor, captured: bool) -> object:
    """Write by the loop that a population has, without noise."""
    repeated = checked_prompts(prompts.repeat(setting.members, 1), 0, None, prompts.device)
    return continue_prompts(model, repeated, setting.tokens, GREEDY, None, [], 0, captured)


def _by_transformers(setting: Setting, model: Any, prompts: torch.Tensor) -> object:
    ids = prompts.repeat(setting.members, 1)
    options = {"max_new_tokens": setting.tokens, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    return model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)


def _population(setting: Setting, search: EvolutionStrategy, prompts: torch.Tensor, captured: bool) -> object:
    search.generation += 1
    return search.ask()[0].generate(prompts, setting.tokens, eos_token_id=[], pad_token_id=0, captured=captured)


def _search(setting: Setting, scheme: Any) -> EvolutionStrategy:
    return EvolutionStrategy(
        llama(setting),
        None,
        population=setting.members,
        group=setting.members,
        std=0.001,
        scheme=scheme,
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1),
    )


def llama(setting: Setting) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device(setting.device):
        model: Any = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=setting.vocabulary,
                hidden_size=setting.width,
                intermediate_size=setting.inner,
                num_hidden_layers=setting.layers,
                num_attention_heads=setting.heads,
                num_key_value_heads=setting.groups,
                max_position_embeddings=setting.length + setting.tokens,
                tie_word_embeddings=True,
            )
        )
    for name, parameter in model.named_parameters():  # as in es-llm: linear layers, without norms and embeddings
        parameter.requires_grad_("proj" in name)
    return model.to(torch.bfloat16).eval()
