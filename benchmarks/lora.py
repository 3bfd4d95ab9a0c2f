"""Bayesian LoRA against plain LoRA: a training step of a Llama whose products take the time, and what it keeps.

The processor's time is measured, which other work on the machine changes less than wall time.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import peft
import torch
import transformers
from torch import Tensor, nn

import flipout
from flipout import bayes

from .record import Row, interleaved, rows
from .small import python_calls
from .step import held_bytes

ROWS, TOKENS, WIDTH, LAYERS = 4, 128, 768, 4
TARGETS = {
    "q v": ["q_proj", "v_proj"],
    "all linear": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}
AGAINST = {"flipout": "plain"}


def run() -> Iterator[Row]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    for name, targets in TARGETS.items():
        case = f"LoRA Llama {LAYERS} × {WIDTH}, {ROWS} × {TOKENS}, {name}"
        models = {variant: _Loss(targets, is_bayesian=variant == "flipout") for variant in ("plain", "flipout")}
        steps = {variant: _step(model) for variant, model in models.items()}
        yield from rows(case, interleaved(steps, seconds=25, least=9, clock=time.process_time), AGAINST)
        yield from rows(case, {variant: [python_calls(step)] for variant, step in steps.items()}, AGAINST, what="calls")
        kept = {variant: [_bytes(model)] for variant, model in models.items()}
        yield from rows(f"{case}, held with weights and AdamW", kept, AGAINST, what="bytes")


class _Loss(nn.Module):
    """Maps token ids to the loss of a Llama with an adapter, with the KL if it has a posterior."""

    def __init__(self, targets: list[str], is_bayesian: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=2000,
            hidden_size=WIDTH,
            intermediate_size=2048,
            num_hidden_layers=LAYERS,
            num_attention_heads=12,
            num_key_value_heads=4,
            pad_token_id=0,
            use_cache=False,
        )
        lora = peft.LoraConfig(r=8, target_modules=targets, task_type="CAUSAL_LM")
        self.model: Any = peft.get_peft_model(transformers.LlamaForCausalLM(config), lora)  # pyright: ignore[reportArgumentType]
        self.is_bayesian = is_bayesian
        if is_bayesian:
            flipout.peft.bayesian_lora(self.model, std=0.01)

    def forward(self, ids: Tensor) -> Tensor:
        loss = self.model(input_ids=ids, labels=ids).loss
        return loss + bayes.kl(self.model) / 10_000 if self.is_bayesian else loss


def _step(model: nn.Module) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(_trained(model), 1e-4)
    ids = _ids()

    def step() -> None:
        model(ids).backward()
        optimizer.step()
        optimizer.zero_grad()

    model.train()
    return step


def _bytes(model: nn.Module) -> float:
    """Return the bytes of a step at its widest, about: what backward needs, all weights, and AdamW's two moments."""
    weights = sum(parameter.nbytes for parameter in model.parameters())
    return held_bytes(model, _ids()) + weights + 2 * sum(parameter.nbytes for parameter in _trained(model))


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _ids() -> Tensor:
    return torch.randint(3, 2000, (ROWS, TOKENS), generator=torch.Generator().manual_seed(0))
