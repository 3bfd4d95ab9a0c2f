"""A state is taken up only by a strategy with the same settings."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from flipout import errors
from tests.es.toys import full, network, strategy


def test_of_another_strategy(tmp_path: Path) -> None:
    strategy().run(1, checkpoint=tmp_path)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"seed": 1}, "seed: 1 given, 0 in the checkpoint"),
        ({"population": 28}, "population: 28 given, 24 in"),
        ({"scheme": "independent"}, "scheme"),
        ({"std": 0.2}, "std: 0.2 given"),
        ({"shaping": "raw"}, "shaping: 'raw' given"),
        ({"optimizer": torch.optim.SGD}, "optimizer: 'SGD' given, 'Adam' in"),
        ({"model": network()[:1]}, "parameters"),
        ({"schedule": lambda o: torch.optim.lr_scheduler.StepLR(o, 1)}, "only one has a schedule"),
    ]
    for how, said in wrong:
        evolution = strategy(lambda population: [0.0] * population.size, **how)
        with pytest.raises(errors.RunError, match=said):
            evolution.resume(tmp_path)
        assert evolution.generation == 0


def test_a_copy_that_joins_late_catches_up_by_the_state() -> None:
    evolution, late = full(), full()
    evolution.run(3)
    late.load(pickle.loads(pickle.dumps(evolution.state())))
    for running in (evolution, late):
        running.run(5)
    for parameter, original in zip(late.model.parameters(), evolution.model.parameters(), strict=True):
        assert torch.equal(parameter, original)


def spoilt(state: dict[str, Any], *path: Any, value: Any) -> dict[str, Any]:
    inner: Any = state
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return state


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("generation",), "7", "generation: '7' found"),
        (("generation",), -1, "generation: -1 found"),
        (("generation",), True, "generation: True found"),
        (("model",), {}, "model: '0.bias' is only in the model"),
        (
            ("model", "0.bias"),
            torch.zeros(7),
            r"model\['0\.bias'\]: torch\.float32 of \(7,\) found; expected torch\.float64",
        ),
        (("model", "0.bias"), 3, r"model\['0\.bias'\]: 3 found"),
        (("optimizer", "param_groups"), [], "optimizer.param_groups: 0 found; expected 1"),
        (("optimizer", "param_groups", 0), 1, r"optimizer\.param_groups\[0\]: 1 found; expected a group"),
        (("optimizer", "param_groups", 0, "lr"), "high", r"param_groups\[0\]\['lr'\]: 'high' found; expected a value"),
        (("optimizer", "state"), [], r"optimizer\.state: \[\] found; expected a dict"),
        (
            ("optimizer", "param_groups", 0, "betas"),
            (0.9, None),
            r"\['betas'\]: \(0\.9, None\) found; expected a value like",
        ),
        (("optimizer", "state", 0, "exp_bvg"), torch.zeros(3), r"optimizer\.state\[1\]: no 'exp_bvg'; expected"),
        (
            ("optimizer", "state", 0, "exp_avg"),
            torch.zeros(3),
            r"optimizer\.state: 'exp_avg' is .*expected values alike",
        ),
        (("optimizer", "state", 0, "step"), "x", r"optimizer\.state: 'step' is .*expected values alike"),
        (("optimizer", "state", 99), {}, r"optimizer\.state\[99\]"),
        (("optimizer", "state", 0), {"step": "x"}, r"optimizer\.state\[0\]: no 'exp_"),
        (("schedule",), 3, "schedule: 3 found; expected a dictionary"),
        (("schedule", "step"), 3, "schedule: 'step' found; expected the name of a value"),
        (("schedule", "last_epoch"), "3", r"schedule\['last_epoch'\]: '3' found"),
        (("history",), [3], r"history\[0\]: 3 found; expected an object"),
        (("history", 0, "seconds"), "3", r"history\[0\]\.seconds: '3' found; expected a number"),
        (("more",), 3, "state: .* found; expected the parts settings, generation"),
    ],
)
def test_a_broken_state_changes_nothing(path: tuple[Any, ...], value: Any, says: str) -> None:
    saved, evolution, expected = full(), full(), full()
    saved.run(2)
    for running in (evolution, expected):
        running.run(1)
    with pytest.raises(errors.RunError, match=says):
        evolution.load(spoilt(saved.state(), *path, value=value))
    for running in (evolution, expected):
        running.run(3)
    assert [record.fitness_mean for record in evolution.history] == [record.fitness_mean for record in expected.history]
    for parameter, original in zip(evolution.model.parameters(), expected.model.parameters(), strict=True):
        assert torch.equal(parameter, original)


SCHEDULES: list[Any] = [
    lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 3]),
    lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.StepLR(o, 2)], [2]
    ),
]


@pytest.mark.parametrize("number", range(len(SCHEDULES)))
def test_every_schedule_is_taken_up(tmp_path: Path, number: int) -> None:
    whole, first, second = (strategy(schedule=SCHEDULES[number]) for _ in range(3))
    whole.run(5)
    first.run(2, checkpoint=tmp_path)
    assert second.resume(tmp_path)
    second.run(5)
    for parameter, original in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(parameter, original)
