"""transformers' own gradient checkpointing recomputes a noisy forward pass under the same draw."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import flipout

VOCABULARY = 31


def llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4
    )
    return transformers.LlamaForCausalLM(config)


def gpt2() -> Any:
    """With dropout, whose masks have to be the same too."""
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("make", [llama, gpt2])
@pytest.mark.filterwarnings("ignore::UserWarning:torch.utils.checkpoint")
def test_gradients_are_those_of_the_plain_backward_pass(make: Any, reentrant: bool) -> None:
    torch.manual_seed(0)
    model = flipout.perturb(make().double().train(), flipout.MeanField(std=0.1))
    ids = torch.randint(3, VOCABULARY, (3, 7))

    def gradients() -> tuple[Tensor, dict[str, Tensor]]:
        model.zero_grad()
        torch.manual_seed(5)
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    loss, expected = gradients()
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    assert model.is_gradient_checkpointing
    again, found = gradients()
    assert torch.equal(loss, again)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.equal(found[name], gradient), name
