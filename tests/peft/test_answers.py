"""Probabilities of answers against a loop over explicit samples, prompts and choices."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from torch import Tensor

import flipout
from flipout import errors
from flipout.peft._answers import rows_within

from ..zoo import text
from .models import bayesian, tokens

SAMPLES = 3


def padded(count: int = 2) -> dict[str, Tensor]:
    """Prompts of 5 and 7 tokens, padded on the left."""
    inputs = tokens(count)
    mask = torch.ones_like(inputs["input_ids"])
    mask[0, :2] = 0
    return {"input_ids": inputs["input_ids"].masked_fill(mask == 0, 0), "attention_mask": mask}


def members(model: Any, folder: Path, seed: int) -> list[Any]:
    """Plain models with the weights of each sample, which under `predict(joint=True)` all prompts see."""
    found = []
    for path in flipout.peft.export_samples(model, folder, samples=SAMPLES, seed=seed):
        torch.manual_seed(0)
        base = text.model(type(model.get_base_model()).__name__.removesuffix("ForCausalLM")).double()
        found.append(peft.PeftModel.from_pretrained(base, str(path), autocast_adapter_dtype=False).eval())
    return found


def test_single_tokens(tmp_path: Path) -> None:
    model, inputs, answers = bayesian(), padded(), [4, 9, 20]
    found = flipout.peft.predict_answers(model, inputs, answers, samples=SAMPLES, joint=True, group=1, seed=6)
    expected = []
    for network in members(model, tmp_path, 6):
        rows = []
        for n in range(2):
            ids = inputs["input_ids"][n][inputs["attention_mask"][n] == 1][None]
            rows.append(network(input_ids=ids).logits[0, -1, answers].detach().softmax(0))
        expected.append(torch.stack(rows))
    torch.testing.assert_close(found.mean, torch.stack(expected).mean(0))
    assert bool((found.epistemic > 1e-4).all())


@pytest.mark.parametrize("normalise", [False, True])
def test_texts(tmp_path: Path, normalise: bool) -> None:
    model, inputs = bayesian(), padded()
    choices = torch.tensor([[[5, 6, 7], [8, -100, -100], [9, 3, -100]], [[4, 4, -100], [11, 12, 13], [-100] * 3]])
    found = flipout.peft.predict_answers(
        model, inputs, choices, samples=SAMPLES, normalise=normalise, joint=True, group=1, seed=6
    )
    for s, network in enumerate(members(model, tmp_path, 6)):
        for n in range(2):
            prompt = inputs["input_ids"][n][inputs["attention_mask"][n] == 1]
            scores = []
            for choice in choices[n]:
                words = choice[choice != -100]
                logits = network(input_ids=torch.cat((prompt, words))[None]).logits[0].detach().log_softmax(-1)
                total = sum(logits[len(prompt) - 1 + i, word] for i, word in enumerate(words))
                scores.append(torch.as_tensor(total / (len(words) if normalise else 1) if len(words) else -torch.inf))
            assert found.samples is not None
            torch.testing.assert_close(found.samples[s, n], torch.stack(scores).double().softmax(0))
    assert float(found.mean[1, 2]) == 0.0
    assert bool(found.epistemic.isfinite().all())


def test_memory_bounds_the_rows_and_not_the_answer() -> None:
    model, inputs = bayesian(), padded()
    assert rows_within(2**20, model, 2) == 2**20 // (16 * 2 * text.WORDS)
    options: dict[str, Any] = {"samples": 8, "seed": 1}
    small = flipout.peft.predict_answers(model, inputs, [4, 9], memory=1, **options)
    torch.testing.assert_close(small.mean, flipout.peft.predict_answers(model, inputs, [4, 9], **options).mean)


@pytest.mark.parametrize(
    ("change", "answers", "match"),
    [
        ({"attention_mask": torch.tensor([[1] * 6 + [0], [1] * 7])}, [3, 4], "padding_side='left'"),
        ({}, torch.ones(2, 2, 2), "dtype torch.float32"),
        ({}, torch.ones(2, 2).long(), r"shape \(2, 2\)"),
        ({}, torch.ones(3, 2, 2).long(), "for 2 prompts"),
        ({}, torch.tensor([[[-100, 4]], [[4, 4]]]), "on the right"),
        ({}, [3, text.WORDS], f"token id {text.WORDS} .* from 0 to {text.WORDS - 1}"),
        ({}, [3, -100], "token id -100 among"),
        ({}, torch.tensor([[[5, -3]], [[4, 4]]]), "token id -3 .* and -100 for padding"),
        ({"input_ids": torch.ones(7).long()}, [3, 4], "input_ids of shape"),
    ],
)
def test_bad_input(change: dict[str, Tensor], answers: Any, match: str) -> None:
    with pytest.raises(errors.InvalidInput, match=match):
        flipout.peft.predict_answers(bayesian(), {**padded(), **change}, answers)
