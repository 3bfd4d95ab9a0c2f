"""All modules of a model, in a few calls: torch's `named_modules` is a generator for each level of every module."""

from collections.abc import Iterator, Mapping

from torch import nn


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return what torch's `named_modules` yields, in its order: each module once, under its first name."""
    found: dict[str, nn.Module] = {}
    seen: set[nn.Module] = set()
    waiting = [("", model)]
    while waiting:
        name, module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        found[name] = module
        if module._modules:
            prefix = f"{name}." if name else ""
            children = [(prefix + key, child) for key, child in module._modules.items() if child is not None]
            waiting += children[::-1]
    return found


def named_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield what torch's `named_parameters` yields, in its order: each Parameter once, under its first name."""
    return parameters_in(named_modules(model))


def parameters_in(modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield `named_parameters` of a model from its `named_modules`."""
    seen: set[int] = set()
    for label, module in modules.items():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield (f"{label}.{name}" if label else name), parameter
