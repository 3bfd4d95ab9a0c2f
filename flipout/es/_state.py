"""The state of a strategy: everything that another one with the same arguments needs to continue."""

import copy
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from .._typed import SHORT, Mismatch, typed
from ..errors import RunError
from ._generation import Generation

if TYPE_CHECKING:
    from ._strategy import EvolutionStrategy

_PARTS = {"settings": dict, "generation": int, "model": Mapping, "optimizer": dict, "history": list}


def state_of(strategy: "EvolutionStrategy") -> dict[str, Any]:
    """Return tensors, numbers, and containers of them."""
    schedule = strategy.schedule
    return {
        "settings": _description(strategy),
        "generation": strategy.generation,
        "model": {name: value.clone() for name, value in strategy.model.state_dict().items()},
        "masters": strategy.masters.state(),
        "optimizer": copy.deepcopy(strategy.optimizer.state_dict()),
        "schedule": None if schedule is None else schedule.state_dict(),
        "history": [asdict(record) for record in strategy.history],
    }


def restore_strategy(strategy: "EvolutionStrategy", state: Mapping[str, Any]) -> None:
    """Set a strategy to the state of another one with the same settings: whole, or not at all."""
    try:
        _check_parts(state)
        _check_settings(strategy, state)
        history = [typed(record, Generation, f"history[{i}]") for i, record in enumerate(state["history"])]
        _check_tensors(state["model"], strategy.model.state_dict())
        _check_masters(strategy, state)
        _check_optimizer(state["optimizer"], strategy.optimizer)
        if strategy.schedule is not None:
            _check_schedule(state["schedule"], strategy.schedule)
    except Mismatch as error:
        raise RunError(f"The state is broken ({error}). Give what state() or save(folder) kept.") from error
    _load_optimizer(strategy, state)
    strategy.model.load_state_dict(state["model"])
    strategy.masters.load(state.get("masters", []))
    strategy.history = history
    strategy.generation = state["generation"]


def _load_optimizer(strategy: "EvolutionStrategy", state: Mapping[str, Any]) -> None:
    """Load the optimiser and the schedule. Both keep what they had if either refuses: neither changes it in place."""
    loaded = [part for part in (strategy.optimizer, strategy.schedule) if part is not None]
    before = [dict(vars(part)) for part in loaded]
    try:
        strategy.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))  # it keeps the tensors that it gets
        if strategy.schedule is not None:
            strategy.schedule.load_state_dict(copy.deepcopy(state["schedule"]))
    except Exception as error:
        for part, values in zip(loaded, before, strict=True):
            vars(part).clear()
            vars(part).update(values)
        raise RunError(
            f"The optimiser or its schedule does not take its part of the state ({type(error).__name__}: {error}). "
            "Give what state() or save(folder) kept."
        ) from error


def _check_parts(state: Any) -> None:
    if not isinstance(state, Mapping) or state.keys() - {"masters"} != {*_PARTS, "schedule"}:
        found = list(state) if isinstance(state, Mapping) else state
        raise Mismatch(f"state: {SHORT.repr(found)} found; expected the parts {', '.join([*_PARTS, 'schedule'])}")
    for name, kind in _PARTS.items():
        if not isinstance(state[name], kind) or isinstance(state[name], bool):
            raise Mismatch(f"{name}: {SHORT.repr(state[name])} found; expected a value of type {kind.__name__}")
    if state["generation"] < 0:
        raise Mismatch(f"generation: {state['generation']} found; expected a whole number ≥ 0")


def _check_settings(strategy: "EvolutionStrategy", state: Mapping[str, Any]) -> None:
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


def _check_tensors(saved: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    if saved.keys() != there.keys():
        (name, *_) = sorted(map(str, saved.keys() ^ there.keys()))
        raise Mismatch(f"model: {SHORT.repr(name)} is only in {'the state' if name in saved else 'the model'}")
    for name, tensor in there.items():
        if isinstance(tensor, Tensor) and _layout(saved[name]) != _layout(tensor):
            raise Mismatch(f"model[{name!r}]: {_layout(saved[name])} found; expected {_layout(tensor)}")


def _layout(value: Any) -> str:
    return f"{value.dtype} of {tuple(value.shape)}" if isinstance(value, Tensor) else SHORT.repr(value)


def _check_masters(strategy: "EvolutionStrategy", state: Mapping[str, Any]) -> None:
    """Check the weights in single precision, each against the weight of the model that it rounds to."""
    saved = state.get("masters", [])  # checkpoints of version 0.3 have none
    names = {id(parameter): name for name, parameter in strategy.model.named_parameters()}
    there = [(names[id(parameter)], master) for parameter, master in strategy.masters.lasting()]
    if not isinstance(saved, list) or (saved and len(saved) != len(there)):
        found = len(saved) if isinstance(saved, list) else SHORT.repr(saved)
        raise Mismatch(f"masters: {found} found; expected a list of {len(there)} weights in single precision")
    for value, (name, master) in zip(saved, there, strict=False):
        if _layout(value) != _layout(master):
            raise Mismatch(f"masters, of {name!r}: {_layout(value)} found; expected {_layout(master)}")
        if not value.to(state["model"][name].dtype).equal(state["model"][name].to(value.device)):
            raise Mismatch(f"masters, of {name!r}: other weights than those of the model in the state")


def _check_optimizer(saved: dict[str, Any], optimizer: Optimizer) -> None:
    """Check what torch does not: it takes a rate that is a text, and fails at the next step."""
    groups = optimizer.state_dict()["param_groups"]
    for name, kind in {"state": dict, "param_groups": list}.items():
        if not isinstance(saved.get(name), kind):
            raise Mismatch(f"optimizer.{name}: {SHORT.repr(saved.get(name))} found; expected a {kind.__name__}")
    if len(saved["param_groups"]) != len(groups):
        raise Mismatch(f"optimizer.param_groups: {len(saved['param_groups'])} found; expected {len(groups)}")
    for i, (group, known) in enumerate(zip(saved["param_groups"], groups, strict=True)):
        place = f"optimizer.param_groups[{i}]"
        if not isinstance(group, dict) or group.get("params") != known["params"]:
            raise Mismatch(f"{place}: {SHORT.repr(group)} found; expected a group with params {known['params']}")
        _check_kinds(group, _shared(known, group), place)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, values in saved["state"].items():
        if not isinstance(number, int) or not 0 <= number < len(parameters) or not isinstance(values, dict):
            found = f"optimizer.state[{SHORT.repr(number)}]: {SHORT.repr(values)} found"
            raise Mismatch(f"{found}; expected the values of one of {len(parameters)} Parameters")
    for group in groups:
        there = {n: (parameters[n], saved["state"][n]) for n in group["params"] if n in saved["state"]}
        _check_siblings(there)


def _check_siblings(there: dict[int, tuple[Tensor, dict[str, Any]]]) -> None:
    """Compare the optimiser's values of the Parameters of a group, since each optimiser has others.

    They have equal names and kinds. If a value of one Parameter has the shape of that Parameter, all have.
    """
    names = list(dict.fromkeys(name for _, values in there.values() for name in values))
    for number, (_, values) in there.items():
        missing = [name for name in names if name not in values]
        if missing:
            expected = sorted(map(str, names))
            raise Mismatch(f"optimizer.state[{number}]: no {SHORT.repr(missing[0])}; expected {expected}")
    for name in names:
        found = [(parameter, values[name]) for parameter, values in there.values()]
        has_shape = {isinstance(value, Tensor) and value.shape == parameter.shape != () for parameter, value in found}
        if len({_kind(value) for _, value in found}) > 1 or len(has_shape) > 1:
            layouts = SHORT.repr([_layout(value) for _, value in found])
            raise Mismatch(f"optimizer.state: {SHORT.repr(name)} is {layouts}; expected values alike")


def _check_schedule(saved: Any, schedule: Any) -> None:
    """Check what torch does not: it sets any attribute that the state names, methods included."""
    _check_kinds(saved, _shared(schedule.state_dict(), saved), "schedule")
    for key in saved:
        if not isinstance(key, str) or callable(getattr(type(schedule), key, None)):
            raise Mismatch(f"schedule: {SHORT.repr(key)} found; expected the name of a value")


def _shared(there: dict[str, Any], saved: Any) -> dict[str, Any]:
    """Return the values that both have. Another version of torch may have more or fewer options."""
    return {key: value for key, value in there.items() if isinstance(saved, dict) and key in saved}


def _check_kinds(saved: Any, there: dict[str, Any], place: str) -> None:
    """Refuse values of another kind than those that are there."""
    if not isinstance(saved, dict):
        raise Mismatch(f"{place}: {SHORT.repr(saved)} found; expected a dictionary")
    for key, value in there.items():
        if key not in saved:
            raise Mismatch(f"{place}: no {key!r}; expected {', '.join(map(str, there))}")
        if value is not None and _kind(saved[key]) != _kind(value):
            raise Mismatch(f"{place}[{key!r}]: {SHORT.repr(saved[key])} found; expected a value like {value!r}")


def _kind(value: Any) -> Any:
    """Return the type, also of the parts. A rate may be a number or a tensor, and an int may become a float."""
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(_kind, value))
    if isinstance(value, Mapping):
        return dict  # a Counter, for one, comes back from a file as a dict
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "number" if is_number or isinstance(value, Tensor) else type(value)


def _description(strategy: "EvolutionStrategy") -> dict[str, Any]:
    """Return what must agree between a state and the strategy that loads it."""
    groups = strategy.optimizer.param_groups
    trained = {id(parameter) for parameter in strategy.masters.trained}
    named = dict(strategy.model.named_parameters())
    return {
        **strategy.settings.description(),
        "optimizer": type(strategy.optimizer).__name__,
        "groups": [len(group["params"]) for group in groups],
        "parameters": {name: list(parameter.shape) for name, parameter in named.items()},
        "fixed": [name for name, parameter in named.items() if id(parameter) not in trained],
        "buffers": {name: list(value.shape) for name, value in strategy.model.named_buffers()},
    }
