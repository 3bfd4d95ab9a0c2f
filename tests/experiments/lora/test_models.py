"""Base models, their adapters, and the scores of choices."""

import sys
import types
from functools import cache

import pytest
import torch

from flipout import errors
from flipout.experiments import extras
from flipout.experiments.lora import models
from flipout.experiments.lora.models import TARGETS, ChoiceScores, adapted, base_model
from flipout.experiments.lora.questions import batched
from tests.peft.models import randomise


def test_the_random_base_depends_on_its_seed_alone() -> None:
    (first, tokenizer), (second, _), (other, _) = (
        base_model("random", 1),
        base_model("random", 1),
        base_model("random", 2),
    )
    assert tokenizer is None
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_the_adapter_is_on_all_linear_layers() -> None:
    model = adapted(base_model("random", 1)[0], 4, 0.1, 0)
    found = {name.split(".lora_A")[0].rpartition(".")[2] for name, _ in model.named_parameters() if ".lora_A" in name}
    assert found == set(TARGETS)


def test_scores_are_log_likelihoods() -> None:
    model = adapted(base_model("random", 1)[0], 4, 0.0, 0).eval()
    randomise(model)
    questions = batched([[1, 5, 9]], [[[8], [9, 10], [3, 4, 5]]], [0], "here")
    with torch.no_grad():
        found = ChoiceScores(model)(**questions.inputs())[0]
        for score, choice in zip(found, [[8], [9, 10], [3, 4, 5]], strict=True):
            logits = model(input_ids=torch.tensor([[1, 5, 9, *choice]])).logits[0].log_softmax(-1)
            expected = sum(logits[2 + i, word] for i, word in enumerate(choice))
            torch.testing.assert_close(score, expected, rtol=1e-5, atol=1e-6)


def test_scores_do_not_depend_on_what_a_question_is_batched_with() -> None:
    model = adapted(base_model("random", 1)[0], 4, 0.0, 0).eval()
    randomise(model)
    questions = batched([[1, 5, 9], [1, 5, 9, 11, 12, 13]], [[[8]], [[9, 10], [3], [4, 5]]], [0, 0], "here")
    lengths = []
    hook = model.register_forward_pre_hook(
        lambda _, args, inputs: lengths.append(inputs["input_ids"].shape[1]), with_kwargs=True
    )
    with torch.no_grad():
        both = ChoiceScores(model)(**questions.inputs())
        assert lengths == [8, 7, 8]
        lengths.clear()
        alone = ChoiceScores(model)(**questions[[0]].inputs())
        assert lengths == [4]  # without padding, and without choices that it does not have
    hook.remove()
    torch.testing.assert_close(alone[0], both[0])
    assert alone[0, 1:].tolist() == [-torch.inf, -torch.inf]


def test_one_file_is_read_once_and_its_weights_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []

    @cache
    def load(device: torch.device):
        loads.append(device)
        return base_model("random", 1)[0], "tokenizer"

    monkeypatch.setattr(models, "_smollm2", load)
    first, tokenizer = base_model("smollm2", 0)
    model = adapted(first, 4, 0.0, 0)
    second, _ = base_model("smollm2", 0)
    assert (loads, tokenizer) == ([torch.device("cpu")], "tokenizer")
    assert model.get_base_model().lm_head.weight is second.lm_head.weight
    assert not any("lora" in name for name, _ in second.named_modules())


def test_the_package_with_the_language_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", types.ModuleType("gguf"))
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(errors.MissingExtra, match=r"flipout\[lora\]"):
        base_model("smollm2", 0)
