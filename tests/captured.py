"""A stand-in for CUDA that captures nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flipout import _capture


class Stream:
    def wait_stream(self, other: "Stream") -> None:
        pass


class FakeCuda:
    """The part of torch.cuda that a capture uses. The next captures raise `errors`; `done` records what happened."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.default = self.current = Stream()
        self.errors: list[Exception | None] = []
        self.done: list[str] = []
        self.capturing = False
        capture_stream = Stream()

        @contextmanager
        def stream(entered: Stream) -> Iterator[None]:
            before, self.current = self.current, entered
            try:
                yield
            finally:
                self.current = before

        @contextmanager
        def graph(graph: Any, stream: Stream | None = None) -> Iterator[None]:
            """Act as torch.cuda.graph: if a capture fails, its end fails too and the stream is not restored."""
            before, self.current, self.capturing = self.current, stream or capture_stream, True
            self.done.append("capture")
            try:
                yield
            except Exception:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")  # noqa: B904
            finally:
                self.capturing = False
            self.current = before

        replayed = SimpleNamespace(replay=lambda: self.done.append("replay"), reset=lambda: None)
        for name, fake in {
            "is_available": lambda: True,
            "current_stream": lambda: self.current,
            "default_stream": lambda: self.default,
            "Stream": Stream,
            "stream": stream,
            "CUDAGraph": lambda: replayed,
            "graph": graph,
            "synchronize": lambda: None,
            "empty_cache": lambda: None,
        }.items():
            patch.setattr(torch.cuda, name, fake)
        patch.setattr(_capture, "prepare_autograd", lambda device: self.done.append("prepare"))
        patch.setattr(_capture, "finish_failed_capture", lambda: None)

    def step(self, *inputs: Any) -> None:
        self.done.append("step")
        if self.capturing and self.errors:
            error = self.errors.pop(0)
            if error is not None:
                raise error
