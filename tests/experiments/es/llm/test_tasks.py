"""What the tasks train, and on which data."""

from pathlib import Path
from typing import Any

import pytest
import torch

from flipout.experiments.es.llm.presets import ES_LLM
from flipout.experiments.es.llm.tasks import as_lists, make_task
from flipout.experiments.lora.models import TARGETS
from flipout.experiments.lora.questions import batched
from flipout.experiments.running.progress import RunProgress
from flipout.experiments.running.runs import Run

SMOKE: Any = ES_LLM.presets["smoke"]


def run_in(folder: Path) -> Run:
    return Run(folder, 0, torch.device("cpu"), RunProgress())


def test_questions_as_lists() -> None:
    prompts, choices, answers = [[3, 4], [5, 6, 7]], [[[8], [9, 10]], [[11], [12], [13, 14]]], [1, 2]
    assert as_lists(batched(prompts, choices, answers, "here")) == (prompts, choices, answers)


@pytest.mark.parametrize("name", ["choice", "text"])
def test_a_task_trains_linear_layers_alone(name: Any, tmp_path: Path) -> None:
    task = make_task(SMOKE, name, run_in(tmp_path))
    trained = {name.split(".")[-2] for name, p in task.model.named_parameters() if p.requires_grad}
    assert trained == set(TARGETS)
    assert 0 <= task.accuracy(task.model) <= 1
    assert task.tokens > 0


def test_the_tokens_of_a_member_are_those_it_reads(tmp_path: Path) -> None:
    """Every question has a prompt of 8 tokens and 4 choices of 2."""
    assert make_task(SMOKE, "choice", run_in(tmp_path)).tokens == SMOKE.batch * 4 * (8 + 2)
