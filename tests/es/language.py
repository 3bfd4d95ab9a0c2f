"""Small language models of transformers for the tests."""

import copy
from typing import Any

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

import flipout
from flipout import es
from flipout.es._seeds import seed_of

VOCABULARY, END = 61, 5
PROMPTS = [[3, 4, 9], [7, 8, 9, 10, 11], [2]]


_TOKENS: dict[str, Any] = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": END, "pad_token_id": 0}


def llama(dtype: torch.dtype = torch.float64, *, tied: bool = True) -> Any:
    """Weights are large, so that texts vary."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        tie_word_embeddings=tied,
        initializer_range=0.6,
        bos_token_id=1,
        eos_token_id=END,
        pad_token_id=0,
    )
    model: Any = LlamaForCausalLM(config)
    return model.to(dtype).eval()


def gpt2() -> Any:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=16,
        n_layer=2,
        n_head=4,
        n_positions=32,
        initializer_range=0.6,
        bos_token_id=1,
        eos_token_id=END,
        pad_token_id=0,
    )
    return GPT2LMHeadModel(config).double().eval()


def opt() -> Any:
    """Learned positions that begin behind the padding, and tokens that are folded into the rows."""
    torch.manual_seed(0)
    config = OPTConfig(
        hidden_size=16,
        word_embed_proj_dim=16,
        ffn_dim=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        init_std=0.6,
        **_TOKENS,
    )
    return OPTForCausalLM(config).double().eval()


def windowed(name: str) -> Any:
    """Attention over four tokens, in all layers or in one of two."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
        "initializer_range": 0.6,
        "sliding_window": 4,
        **_TOKENS,
    }
    if name == "mistral":
        return MistralForCausalLM(MistralConfig(**shape)).double().eval()
    kinds = ["sliding_attention", "full_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**shape, head_dim=4, layer_types=kinds)).double().eval()


def strategy(model: Any, fitness: Any = None, **how: Any) -> es.EvolutionStrategy:
    settings = {"population": 6, "std": 0.05, "scheme": "rank_one", **how}
    return es.EvolutionStrategy(model, fitness, optimizer=lambda p: torch.optim.SGD(p, 0.1), **settings)


def member_model(population: es.Population, member: int) -> Any:
    """Return a plain model with the weights of one member."""
    plain = copy.deepcopy(population.model)
    where = {"first": population.first, "group": population.group, "antithetic": population.antithetic}
    with flipout.hold(plain, seed_of(population.seed, population.generation), **where):
        return flipout.freeze(plain, at="draw", example=member).eval()
