"""Every text model of transformers' `AutoModelForCausalLM` that can be built small, and what became of it.

python -m tests.zoo.sweep tests/zoo/causal.csv
"""

import contextlib
import copy
import csv
import inspect
import io
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

import flipout
from flipout import errors

from .oracle import Family, compare
from .text import WORDS, tokens

_SIZES: dict[str, Any] = {
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
_MOST = 3_000_000  # numbers of a model that counts as tiny


def built() -> Iterator[tuple[str, nn.Module | str]]:
    """Yield the name of each model with the model, or with why it could not be built small."""
    for config_type, model_type in MODEL_FOR_CAUSAL_LM_MAPPING.items():
        kinds: tuple[Any, ...] = model_type if isinstance(model_type, tuple) else (model_type,)
        try:
            allowed = inspect.signature(config_type.__init__).parameters
            sizes = {name: value for name, value in _SIZES.items() if name in allowed}
            if not sizes:
                sizes = {name: value for name, value in _SIZES.items() if hasattr(config_type(), name)}
            config = config_type(**sizes)
            with torch.device("meta"):
                count = sum(p.numel() for p in kinds[0](config).parameters())
            if count > _MOST:
                yield kinds[0].__name__, f"not tiny: {count} numbers"
                continue
            torch.manual_seed(0)
            built = kinds[0](config)
            built.config._experts_implementation = "eager"
            copy.deepcopy(built).double().eval()(**tokens(2))
            yield kinds[0].__name__, built
        except Exception as error:
            yield (
                kinds[0].__name__,
                f"not built: {type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}",
            )


def outcome(make: nn.Module, **options: Any) -> tuple[str, str]:
    """Return what became of a model that was converted with these options, and more about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            difference = compare(Family(lambda: copy.deepcopy(make), tokens, options=options), gradients=False)
        except errors.FlipoutError as error:
            said = re.sub(r"/\S*/site-packages/", "", str(error))
            return "refused", f"{type(error).__name__}: {said[:160]}"
        except AssertionError as error:
            return "wrong", f"counts other examples: {error}"
        except Exception as error:
            return "failed", f"{type(error).__name__}: {str(error)[:160]}"
    left = "; some left out, with a warning" if any(w.category is errors.LeftPlain for w in caught) else ""
    # Norms that compute in fp32 round each example by itself.
    return ("right" if difference < 1e-6 else "wrong"), f"difference {difference:.0e}{left}"


def main(path: Path) -> None:
    """Write the table."""
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        versions = f"transformers {transformers.__version__}", f"flipout {flipout.__version__}"
        table.writerow(["model", "outcome", "more", "outcome with example_inputs", "more with them", *versions])
        for name, model in built():
            with contextlib.redirect_stderr(io.StringIO()):
                if isinstance(model, str):
                    row = ("not built", model) * 2
                else:
                    row = (*outcome(model), *outcome(model, example_inputs=tokens(3)))
            table.writerow([name, *(" ".join(cell.split()) for cell in row)])
            file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
