"""What makes a configuration of transformers tiny."""

from typing import Any

from .text import WORDS

SIZES: dict[str, Any] = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "embedding_dim", "word_embed_proj_dim", "embed_dim"), 16
    ),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_key_value_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff"), 24),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 12),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k"), 2),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    "head_dim": 4,
    "d_kv": 4,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 4,
    "state_size": 4,
    "ssm_state_size": 4,
    "vocab_size": WORDS,
    "max_position_embeddings": 32,
    "n_positions": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
    "attention_probs_dropout_prob": 0.0,
    "is_decoder": True,
}

# Their configurations are of several parts, and the model takes that of text.
TEXT_PART = (
    "Emu3ForCausalLM",
    "Llama4ForCausalLM",
    "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForCausalLM",
    "Qwen4ExpForCausalLM",
)

_STATE_SPACE = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 2, "mamba_chunk_size": 4}
_PER_LAYER: dict[str, Any] = {
    "vocab_size_per_layer_input": WORDS,
    "hidden_size_per_layer_input": 4,
    "num_kv_shared_layers": 0,
}
_PER_LAYER["layer_types"] = ["sliding_attention", "full_attention"]
_ATTENTION = {"attention_head_dim": 8, "attention_hidden_size": 32}
MORE: dict[str, dict[str, Any]] = {  # sizes of single models
    "BambaForCausalLM": {**_STATE_SPACE, "attn_layer_indices": [1]},
    "CodeGenForCausalLM": {"rotary_dim": 4},
    "Dots1ForCausalLM": {"first_k_dense_replace": 1, "n_shared_experts": 1},
    "GPTJForCausalLM": {"rotary_dim": 4},
    "GPTNeoForCausalLM": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "Gemma3nForCausalLM": {**_PER_LAYER, "laurel_rank": 2, "activation_sparsity_pattern": [0.0, 0.0]},
    "Gemma4ForCausalLM": {**_PER_LAYER, "global_head_dim": 4},
    "GraniteMoeHybridForCausalLM": {
        **_STATE_SPACE,
        "layer_types": ["mamba", "attention"],
        "shared_intermediate_size": 24,
    },
    "Lfm2MoeForCausalLM": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "LongcatFlashForCausalLM": {
        "ffn_hidden_size": 24,
        "expert_ffn_hidden_size": 12,
        "num_layers": 1,
        "zero_expert_num": 2,
    },
    "Mamba2ForCausalLM": {"num_heads": 4, "head_dim": 8, "n_groups": 2, "chunk_size": 4},
    "ReformerModelWithLMHead": {
        "axial_pos_shape": [4, 8],
        "axial_pos_embds_dim": [8, 8],
        "attention_head_size": 4,
        "feed_forward_size": 24,
        "attn_layers": ["local", "lsh"],
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
        "num_buckets": 2,
        "hash_seed": 0,
    },
    "RoCBertForCausalLM": {
        "pronunciation_vocab_size": 11,
        "shape_vocab_size": 11,
        "pronunciation_embed_dim": 8,
        "shape_embed_dim": 8,
    },
    "XLMWithLMHeadModel": {"emb_dim": 16, "n_words": WORDS, "n_langs": 1},
    "XmodForCausalLM": {"default_language": "en_XX"},
    "Zamba2ForCausalLM": {
        **_ATTENTION,
        "mamba_d_state": 4,
        "layers_block_type": ["mamba", "hybrid"],
        "n_mamba_heads": 4,
        "mamba_headdim": 8,
        "mamba_ngroups": 1,
        "chunk_size": 4,
        "num_mem_blocks": 1,
        "adapter_rank": 4,
    },
    "ZambaForCausalLM": {
        **_ATTENTION,
        "mamba_d_state": 4,
        "layers_block_type": ["hybrid", "hybrid"],
        "n_mamba_heads": 2,
        "mamba_dt_rank": 2,
    },
    "ZayaForCausalLM": {"num_experts_per_tok": 1},
}
