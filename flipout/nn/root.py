"""The root: the module whose call is one forward pass and takes one draw for everything inside."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..draw import Draw, fresh_seed, from_seed
from ..errors import AmbiguousReplay


def recomputing() -> bool:
    """Inside a backward pass: a forward that runs there is a checkpoint's recomputation."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, dict):
        yield from _tensors(list(output.values()))
    elif isinstance(output, (list, tuple)):
        for part in output:
            yield from _tensors(part)


def _ambiguous(what: str) -> AmbiguousReplay:
    return AmbiguousReplay(
        f"A checkpoint recomputes a perturbed layer in backward, but {what}, so the draw of its forward pass cannot be "
        "known. Run each backward before the next forward and keep no loss tensors alive (use loss.item()), or use "
        "flipout.checkpoint(function, *args), which carries the draw."
    )


@dataclass(eq=False)
class Root:
    """Hooks of the root module, the draw of the forward pass that is running, and the draws of earlier ones."""

    share_base: bool = False
    process_group: Any = None
    depth: int = 0
    calls: int = 0
    draw: Draw | None = None
    holds: int = 0  # `hold` contexts that are open on layers of this root
    earlier: list[tuple[int, weakref.ref[Draw]]] = field(default_factory=list)  # draws whose graphs may be alive
    released: list[Draw] = field(default_factory=list)  # draws of finished `hold` contexts
    replayed: bool = False  # a released draw was used by a recomputation

    def attach(self, module: nn.Module) -> None:
        module.register_forward_pre_hook(self.enter)
        module.register_forward_hook(self.exit, always_call=True)

    def detach(self, module: nn.Module) -> None:
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for handle, hook in list(hooks.items()):
                if getattr(hook, "__self__", None) is self:
                    del hooks[handle]
                    module._forward_hooks_always_called.pop(handle, None)

    def open_hold(self) -> None:
        self.holds += 1
        if self.replayed:
            self.released, self.replayed = [], False

    def close_hold(self, draw: Draw) -> None:
        self.holds -= 1
        self.released = [*self.released[-1:], draw]

    def take(self, device: torch.device) -> Draw:
        """A fresh draw: one number of torch's global generator."""
        seed, rank = fresh_seed(device), 0
        if dist.is_available() and dist.is_initialized():
            rank = dist.get_rank(self.process_group)
            if self.share_base:
                dist.broadcast(seed, group=self.process_group, group_src=0)
        return from_seed(seed, rank=rank, share_base=self.share_base)

    def enter(self, module: nn.Module, args: Any) -> None:
        self.depth += 1
        if self.depth > 1:
            return
        again = recomputing()
        if self.holds or (again and self.released):
            return
        if not again:
            self.calls += 1
            self.released = []
        if module.training:
            parameter = next(module.parameters(), None)
            self.draw = self.take(torch.device("cpu") if parameter is None else parameter.device)

    def exit(self, module: nn.Module, args: Any, output: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            draw, self.draw = self.draw, None
            if draw is not None and not torch.compiler.is_compiling():
                self.remember(draw, output)

    def remember(self, draw: Draw, output: Any) -> None:
        """Let the draw live as long as the graph of this output, for a checkpoint that recomputes a part of it."""
        self.earlier = [entry for entry in self.earlier if entry[1]() is not None]
        nodes = [tensor.grad_fn for tensor in _tensors(output) if tensor.grad_fn is not None]
        if nodes and all(entry[1]() is not draw for entry in self.earlier):
            self.earlier.append((self.calls, weakref.ref(draw)))
        for node in nodes:
            node.metadata[id(self)] = draw  # pyright: ignore[reportIndexIssue]

    def current(self, device: torch.device) -> Draw | None:
        """The draw of the running forward pass; in a recomputation, that of the one it repeats."""
        if self.draw is None and self.depth and not self.holds:
            self.draw = self.take(device)  # a layer in training mode inside a root that is not
        return self.draw

    def replay(self, alone_since: int | None) -> Draw | None:
        """The draw to repeat for a layer outside a running root; None where torch's generator repeats it."""
        alive = [(call, draw) for call, ref in self.earlier if (draw := ref()) is not None]
        known = {id(draw): draw for draw in [*self.released, *(draw for _, draw in alive)]}
        if not known:
            return None
        self.replayed = bool(self.released)
        if len(known) > 1:
            raise _ambiguous(f"{len(known)} forward passes with different draws are waiting for theirs")
        if alive and alone_since is not None and alone_since >= alive[0][0]:
            raise _ambiguous("the layer was called both inside and outside of its root")
        return next(iter(known.values()))

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles start between forward passes."""
        return {"share_base": self.share_base, "process_group": self.process_group}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)
