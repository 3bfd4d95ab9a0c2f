"""Who computes: what is chosen, what a request does, and that nothing of it is needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import flipout
from flipout import backend
from flipout.errors import BackendUnavailable, InvalidArgument

HERE = torch.zeros(2)


def kernel() -> str:
    return "kernel"


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of its own, in a process where kernels may serve a CPU."""
    for name, value in {
        "_kernels": {},
        "_offered": [],
        "_refused": [],
        "_requested": "auto",
        "_INTERPRETED": True,
    }.items():
        monkeypatch.setattr(backend, name, value)
    backend.register("product", kernel, lambda tensor, dtype=torch.float32: dtype == torch.float32)


def test_the_automatic_choice_takes_a_kernel_that_fits() -> None:
    assert backend.chosen("product", HERE) is kernel
    assert backend.chosen("product", HERE, torch.float64) is None
    assert backend.chosen("sum", HERE) is None


def test_the_automatic_choice_leaves_a_cpu_and_the_compiler_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if backend.chosen("product", x) is None else x - 1

    assert torch.equal(f(HERE), HERE - 1)
    assert torch.equal(torch.compile(f, backend="eager", fullgraph=True)(HERE), HERE + 1)
    torch.compiler.reset()
    monkeypatch.setattr(backend, "_INTERPRETED", False)
    backend.offer("no.such.module")
    assert torch.equal(f(HERE), HERE + 1)
    assert backend._offered  # nothing was imported for it


def test_eager_uses_no_kernel() -> None:
    with backend.using("eager"):
        assert backend.chosen("product", HERE) is None


def test_a_request_fails_where_no_kernel_serves() -> None:
    with backend.using("triton"):
        assert backend.chosen("product", HERE) is kernel
        with pytest.raises(BackendUnavailable, match=r"'product' with a tensor on cpu, torch.float64.*using\('auto'\)"):
            backend.chosen("product", HERE, torch.float64)
        with pytest.raises(BackendUnavailable, match="'sum'"):
            backend.chosen("sum", HERE)


def test_a_request_says_why_kernels_are_missing() -> None:
    backend.offer("no_such_module")
    assert backend.chosen("sum", HERE) is None
    with backend.using("triton"), pytest.raises(BackendUnavailable, match="No module named 'no_such_module'"):
        backend.chosen("sum", HERE)


def test_requests_nest_and_end_with_an_error() -> None:
    with backend.using("eager"):
        with backend.using("auto"):
            assert backend.chosen("product", HERE) is kernel
        assert backend.chosen("product", HERE) is None
    with pytest.raises(ZeroDivisionError), backend.using("eager"):
        raise ZeroDivisionError
    assert backend.chosen("product", HERE) is kernel


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"'cuda'.*'auto', 'eager', 'triton'"), backend.using("cuda"):  # pyright: ignore[reportArgumentType]
        pass


MODEL = """
import sys, torch, flipout
model = flipout.perturb(torch.nn.Linear(3, 4), flipout.Gaussian(0.5))
x = torch.ones(2, 3)
def output():
    with flipout.hold(model, seed=3):
        return model(x)
"""


def run(code: str, **environment: str) -> None:
    """In a process of its own: what is imported there, and when, is the question."""
    subprocess.run(
        [sys.executable, "-W", "error", "-c", MODEL + code],
        check=True,
        cwd=Path(flipout.__file__).parents[1],
        env={**{k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}, **environment},
    )


def test_on_a_cpu_triton_is_not_even_imported() -> None:
    run("output(); assert 'triton' not in sys.modules")


def test_without_triton_everything_falls_back() -> None:
    code = """
sys.modules["triton"] = None
output()
try:
    with flipout.backend.using("triton"):
        output()
except flipout.errors.BackendUnavailable as error:
    assert "triton" in str(error), error
else:
    raise AssertionError("no error")
"""
    run(code, TRITON_INTERPRET="1")


def test_a_process_that_asks_for_the_interpreter_gets_it() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    code = """
made = output()
assert "flipout.ops.triton" in sys.modules
with flipout.backend.using("eager"):
    torch.testing.assert_close(made, output())
"""
    run(code, TRITON_INTERPRET="1")
