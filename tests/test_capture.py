"""A captured step does what the step does. Failing captures are tested on a fake of torch.cuda."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import flipout
from flipout import _capture, _cuda_graphs
from flipout.errors import InvalidArgument


def test_without_a_device_the_function_is_called() -> None:
    seen = []

    def step(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return 2 * x

    captured = flipout.capture(step)
    x = torch.randn(3)
    for _ in range(5):
        assert torch.equal(captured(x), 2 * x)
    assert len(seen) == 5
    assert all(seen_input is x for seen_input in seen)
    captured.close()


def test_arguments_must_be_tensors() -> None:
    with pytest.raises(InvalidArgument, match=r"given float 0\.1; expected tensors"):
        flipout.capture(lambda x, lr: x * lr)(torch.randn(3), 0.1)  # pyright: ignore[reportArgumentType]


def test_named_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="given s by name; expected tensors in order"):
        flipout.capture(lambda x, s: x * s)(torch.randn(3), s=torch.ones(3))


def test_inputs_may_be_nested_or_missing() -> None:
    def step(x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
        return x if state is None else x + state[0] * state[1]

    captured, x = flipout.capture(step), torch.ones(3)
    assert torch.equal(captured(x, None), x)
    assert torch.equal(captured(x, (2 * x, 3 * x)), 7 * x)


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


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


FIRST = ["prepare", "step"] * 2  # calls before a capture
NO_CONTEXT = RuntimeError("cuBLAS: there was no current CUDA context\nin autograd's thread")


def test_a_step_is_captured_at_its_third_call_after_two_that_prepare_it(cuda: FakeCuda) -> None:
    captured = flipout.capture(cuda.step)
    for _ in range(4):
        captured()
    assert cuda.done == [*FIRST, "capture", "step", "replay", "replay"]
    captured.close()
    captured()
    assert cuda.done[-2:] == ["prepare", "step"]


def test_a_failed_capture_is_tried_again_and_says_why(cuda: FakeCuda) -> None:
    cuda.errors = [NO_CONTEXT, None]
    captured = flipout.capture(cuda.step)
    captured()
    captured()
    message = r"cannot be captured \(try 1 of 3\).* after 2 more calls: cuBLAS: there was no current CUDA context$"
    with pytest.warns(UserWarning, match=message) as caught:
        captured()
    assert caught[0].filename == __file__
    assert cuda.done == [*FIRST, "capture", "step", "step"]  # the call still returns a result
    cuda.done.clear()
    for _ in range(4):
        captured()
    assert cuda.done == [*FIRST, "capture", "step", "replay", "replay"]


def test_captures_that_keep_failing_are_given_up_with_a_warning(cuda: FakeCuda) -> None:
    cuda.errors.extend([NO_CONTEXT] * 9)
    captured, messages = flipout.capture(cuda.step), []
    for call in range(1, 13):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            captured()
        messages += [(call, str(warning.message)) for warning in caught]
    assert [call for call, _ in messages] == [3, 6, 9]
    assert "(try 3 of 3) and runs uncaptured from now on: cuBLAS" in messages[-1][1]
    assert cuda.done.count("capture") == 3
    assert cuda.done[-3:] == ["step"] * 3


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_failed_capture_leaves_the_current_stream_as_it_was(cuda: FakeCuda, elsewhere: bool) -> None:
    if elsewhere:
        cuda.current = Stream()
    before = cuda.current
    cuda.errors.append(NO_CONTEXT)
    captured = flipout.capture(cuda.step)
    captured()
    captured()
    with pytest.warns(UserWarning, match="cannot be captured"):
        captured()
    assert cuda.current is before


def test_the_cause_is_the_first_error_of_the_capture(cuda: FakeCuda) -> None:
    cuda.errors = [ValueError("")]
    captured = flipout.capture(cuda.step)
    captured()
    captured()
    try:
        raise KeyError("handled while the step is called")
    except KeyError:
        with pytest.warns(UserWarning, match="ValueError$"):
            captured()


def test_calls_of_another_kind_or_thread_prepare_nothing(cuda: FakeCuda) -> None:
    captured = flipout.capture(cuda.step)
    captured(None)
    captured(None, None)
    other = threading.Thread(target=captured, args=(None,))
    other.start()
    other.join()
    captured(None)
    assert "capture" not in cuda.done
    captured(None)
    assert cuda.done[-3:] == ["capture", "step", "replay"]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_preparing_autograd_has_no_side_effects(mode: Any) -> None:
    before = torch.get_rng_state()
    with mode(), torch.autocast("cpu", torch.bfloat16):
        seen: list[str] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: seen.append(str(x.dtype)) or x, lambda x: x):
            _cuda_graphs.prepare_autograd(torch.device("cpu"))
    assert set(seen) == {"torch.float32"}  # a backward pass ran, through a product in single precision
    assert torch.equal(torch.get_rng_state(), before)
