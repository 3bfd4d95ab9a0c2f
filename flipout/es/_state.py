"""The state of a strategy: everything that another one with the same arguments needs to continue."""

import copy
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..errors import RunError
from ._generation import Generation

if TYPE_CHECKING:
    from ._strategy import EvolutionStrategy


def state_of(strategy: "EvolutionStrategy") -> dict[str, Any]:
    """Return tensors, numbers, and containers of them."""
    schedule = strategy.schedule
    return {
        "settings": _description(strategy),
        "generation": strategy.generation,
        "model": {name: value.clone() for name, value in strategy.model.state_dict().items()},
        "optimizer": copy.deepcopy(strategy.optimizer.state_dict()),
        "schedule": None if schedule is None else schedule.state_dict(),
        "history": [asdict(record) for record in strategy.history],
    }


def restore(strategy: "EvolutionStrategy", state: Mapping[str, Any]) -> None:
    """Set a strategy to the state of another one with the same settings."""
    saved, requested = state["settings"], _description(strategy)
    changed = [
        f"{key}: {requested.get(key)!r} given, {saved.get(key)!r} in the checkpoint"
        for key in {**saved, **requested}
        if requested.get(key) != saved.get(key)
    ]
    if changed or (state["schedule"] is None) != (strategy.schedule is None):
        raise RunError(
            f"The checkpoint belongs to another strategy ({', '.join(changed) or 'only one has a schedule'}). Give the "
            "same arguments, or start again in another folder."
        )
    strategy.model.load_state_dict(state["model"])
    strategy.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))  # load_state_dict keeps the tensors it gets
    if strategy.schedule is not None:
        strategy.schedule.load_state_dict(state["schedule"])
    strategy.history = [Generation(**record) for record in state["history"]]
    strategy.generation = state["generation"]


def _description(strategy: "EvolutionStrategy") -> dict[str, Any]:
    """Return what must agree between a state and the strategy that takes it up."""
    groups = strategy.optimizer.param_groups
    trained = {id(parameter) for group in groups for parameter in group["params"]}
    named = dict(strategy.model.named_parameters())
    return {
        **strategy.settings.description(),
        "optimizer": type(strategy.optimizer).__name__,
        "groups": [len(group["params"]) for group in groups],
        "parameters": {name: list(parameter.shape) for name, parameter in named.items()},
        "fixed": [name for name, parameter in named.items() if id(parameter) not in trained],
        "buffers": {name: list(value.shape) for name, value in strategy.model.named_buffers()},
    }
