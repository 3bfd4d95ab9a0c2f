"""The two tasks: the right choice of several, and texts with a property. Each has a training set and a held-out set."""

import copy
from dataclasses import dataclass
from typing import Any

import torch

from flipout.es import text

from ...lora.models import TARGETS, base_model
from ...lora.questions import NONE, Questions, arc, synthetic
from ...running.runs import Run
from .prompts import ends_within, json_prompts, json_with, random_prompts
from .settings import LlmConfig, TaskName


@dataclass(frozen=True, eq=False)
class LlmTask:
    """A model and what it learns. `fitness` draws from the training set, `held_out` has all of the other set."""

    model: Any
    fitness: text.ChoiceAccuracy | text.TextReward
    held_out: text.ChoiceAccuracy | text.TextReward
    tokens: float  # that a member reads or writes in a generation: the mean
    source: str
    questions: Questions | None = None  # of the training set, for backpropagation

    def accuracy(self, model: Any) -> float:
        """Return the held-out accuracy of a model."""
        return self.held_out.evaluate(model)


def load(config: LlmConfig, run: Run) -> tuple[Any, Any]:
    """Return the model in eval mode and its tokenizer. Only the weights of its linear layers are trained."""
    shared, tokenizer = base_model(config.model, run.seed_of("base") % 2**31)
    model = copy.deepcopy(shared)  # what is trained here must not change the next model
    model.config.use_cache = True
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.split(".")[-2] in TARGETS)
    return model.to(run.device, getattr(torch, config.dtype)).eval(), tokenizer


def make_task(config: LlmConfig, name: TaskName, run: Run) -> LlmTask:
    model, tokenizer = load(config, run)
    return (_choice if name == "choice" else _text)(config, model, tokenizer, run)


def _choice(config: LlmConfig, model: Any, tokenizer: Any, run: Run) -> LlmTask:
    sizes, found = {"train": config.train, "test": config.test}, {}
    for split, count in sizes.items():
        generator = run.generator(f"questions.{split}")
        if tokenizer is None:
            found[split] = synthetic(count, noise=0.0, unseen=False, generator=generator)
        else:
            found[split] = arc("easy", split, tokenizer, count, generator)
    lists = {split: as_lists(questions) for split, questions in found.items()}
    fitness = text.ChoiceAccuracy(*lists["train"], batch=min(config.batch, config.train), members=config.chunk)
    tokens = config.batch * sum(
        len(prompt) * len(choices) + sum(map(len, choices)) for prompt, choices, _ in zip(*lists["train"], strict=True)
    )
    held_out = text.ChoiceAccuracy(*lists["test"])
    return LlmTask(model, fitness, held_out, tokens / config.train, found["train"].source, found["train"])


def as_lists(questions: Questions) -> tuple[list[list[int]], list[list[list[int]]], list[int]]:
    """Return prompts, choices and answers, without padding."""
    prompts, choices = [], []
    for ids, mask, labels in zip(questions.input_ids, questions.attention_mask, questions.labels, strict=True):
        prompts.append(ids[0, (mask[0] == 1) & (labels[0] == NONE)].tolist())
        rows = [row[wanted != NONE].tolist() for row, wanted in zip(ids, labels, strict=True)]
        choices.append([row for row in rows if row])
    return prompts, choices, questions.answer.tolist()


def _text(config: LlmConfig, model: Any, tokenizer: Any, run: Run) -> LlmTask:
    prompts, checkers = {}, {}
    for split, count in {"train": config.train, "test": config.prompts_tested}.items():
        if tokenizer is None:
            prompts[split] = random_prompts(count, run.generator(f"prompts.{split}"))
            checkers[split] = ends_within(config.shortest, config.longest, model.config.eos_token_id)
        else:
            prompts[split], wanted = json_prompts(tokenizer, count, held_out=split == "test")
            checkers[split] = json_with(wanted)
    batch = min(config.prompts, len(prompts["train"]))
    fitness, held_out = (
        text.TextReward(prompts[split], checkers[split], config.tokens, tokenizer=tokenizer, **how)
        for split, how in (
            ("train", {"batch": batch, "members": config.writers, "captured": config.captured}),
            ("test", {}),
        )
    )
    source = "prompts of random tokens, made from the seed" if tokenizer is None else "requests for JSON, made here"
    return LlmTask(model, fitness, held_out, float(batch * config.tokens), source)
