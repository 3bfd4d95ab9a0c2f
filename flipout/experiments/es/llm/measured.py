"""What a population's forward pass costs beside plain inference, and whether its members are what they export."""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from flipout.es import EvolutionStrategy, Population

from ...running.runs import Run
from ...training.supervised import isolated_randomness
from .settings import LlmConfig, Method
from .tasks import LlmTask, make_task
from .training import strategy, wait_for

METHODS: tuple[Method, ...] = ("rank_one", "low_rank", "one_by_one")


def shares(config: LlmConfig, run: Run) -> dict[str, float]:
    """Return plain inference's time over each method's time, for the rows of a chunk of members and one question."""
    with isolated_randomness(run), torch.no_grad():
        plain = make_task(config, "choice", run)
        rows = _rows(plain)
        repeated = rows.repeat(config.chunk, 1)
        calls: dict[str, Callable[[], object]] = {"plain": lambda: plain.model(input_ids=repeated)}
        for method in METHODS:
            evolution = strategy(config, make_task(config, "choice", run), method, 0)
            calls[method] = lambda e=evolution, single=method == "one_by_one": _chunk(config, e, rows, single)
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(config.rounds + 1):
            for name, call in calls.items():
                begin = time.perf_counter()
                call()
                wait_for(run.device)
                seconds[name].append(time.perf_counter() - begin)
    run.log(config.rounds, plain=median(seconds["plain"][1:]))
    return {name: median(seconds["plain"][1:]) / median(seconds[name][1:]) for name in METHODS}


def difference(config: LlmConfig, run: Run) -> float:
    """Return the largest difference between logits of members and of plain models with the members' adapters.

    In single precision, relative to the largest logit.
    """
    config = replace(config, dtype="float32")
    with isolated_randomness(run), torch.no_grad():
        task, plain = make_task(config, "choice", run), make_task(config, "choice", run).model
        population, *_ = strategy(config, task, "rank_one", 1).ask(4)
        rows = _rows(task)
        expanded = rows.expand(population.size, *rows.shape)
        logits: Any = population(input_ids=expanded, batched=True, output="logits")
        found = []
        for member, seen in enumerate(logits):
            merged = deepcopy(plain)
            for label, (left, right) in _factors(population, member).items():
                weight = merged.get_parameter(f"{label}.weight")
                weight += (left @ right).to(weight)
            expected = merged(input_ids=rows).logits
            found.append(float((seen - expected).abs().max() / expected.abs().max()))
    run.log(len(found), difference=max(found))
    return max(found)


def _factors(population: Population, member: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return B and A of each layer's adapter."""
    tensors, prefix, end = population.adapter(member).tensors, "base_model.model.", ".lora_A.weight"
    labels = [name.removeprefix(prefix).removesuffix(end) for name in tensors if name.endswith(end)]
    return {label: (tensors[f"{prefix}{label}.lora_B.weight"], tensors[f"{prefix}{label}{end}"]) for label in labels}


def _rows(task: LlmTask) -> Tensor:
    """Return the sequences of one question, (choices, tokens)."""
    assert task.questions is not None
    return task.questions.input_ids[0].to(task.model.device)


def _chunk(config: LlmConfig, evolution: EvolutionStrategy, rows: Tensor, one_by_one: bool) -> None:
    """Run the rows under the weights of as many members as a chunk has. Few members take several generations."""
    done = 0
    while done < config.chunk:
        evolution.generation += 1
        for population in evolution.ask(1 if one_by_one else config.chunk):
            if done < config.chunk:
                population(input_ids=rows.expand(population.size, *rows.shape), batched=True)
                done += population.size
