"""A captured step does what the step does. Failing captures are tested on a fake of torch.cuda."""

import threading
import warnings

import pytest
import torch

import flipout
from flipout.errors import InvalidArgument
from tests.captured import FakeCuda, Stream


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
