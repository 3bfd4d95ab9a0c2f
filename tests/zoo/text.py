"""Tiny language models of transformers."""

from typing import Any

import torch
import transformers
from torch import nn

from .oracle import Family, Inputs

WORDS = 31
_SMALL = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_ENCODER_DECODER = {
    "vocab_size": WORDS,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "Llama": _SMALL,
    "Qwen2": _SMALL,
    "Qwen3": _SMALL,
    "Gemma": _SMALL,
    "Gemma2": _SMALL,
    "Gemma3Text": _SMALL,
    "Mistral": _SMALL,
    "GPT2": {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2},
    "Bert": _SMALL,
    "OPT": {
        "vocab_size": WORDS,
        "hidden_size": 16,
        "ffn_dim": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "word_embed_proj_dim": 16,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "Mixtral": {**_SMALL, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Mamba": {"vocab_size": WORDS, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2, "pad_token_id": 0},
    "Mamba2": {
        "vocab_size": WORDS,
        "hidden_size": 16,
        "state_size": 4,
        "num_hidden_layers": 2,
        "num_heads": 4,
        "head_dim": 8,
        "n_groups": 2,
        "chunk_size": 4,
        "pad_token_id": 0,
    },
    "T5": {
        "vocab_size": WORDS,
        "d_model": 16,
        "d_kv": 4,
        "d_ff": 24,
        "num_layers": 1,
        "num_heads": 4,
        "pad_token_id": 0,
        "decoder_start_token_id": 1,
    },
    "Bart": _ENCODER_DECODER,
}
_CLASSES = {
    "GPT2": "GPT2LMHeadModel",
    "Bert": "BertForMaskedLM",
    "T5": "T5ForConditionalGeneration",
    "Bart": "BartForConditionalGeneration",
    "Gemma3Text": "Gemma3ForCausalLM",
}


def model(name: str, **options: Any) -> nn.Module:
    """Build a tiny model of one family."""
    config = getattr(transformers, f"{name}Config")(**{**OPTIONS[name], **options})
    model = getattr(transformers, _CLASSES.get(name, f"{name}ForCausalLM"))(config)
    model.config.use_cache = False
    model.config._experts_implementation = "eager"  # the fast ones know no fp64
    return model


def tokens(examples: int) -> Inputs:
    """Return sequences of seven tokens, none of them padding."""
    return {"input_ids": torch.randint(3, WORDS, (examples, 7))}


def pairs(examples: int) -> Inputs:
    """Return sources and targets."""
    return {**tokens(examples), "decoder_input_ids": torch.randint(3, WORDS, (examples, 5))}


def family(name: str, **options: Any) -> Family:
    """Return the family of that name, with options of `Family`."""
    return Family(lambda: model(name), pairs if name in ("T5", "Bart") else tokens, **options)
