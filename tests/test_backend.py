"""Kernels: which one is chosen, what an explicit request does, and that everything runs without them."""

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
    """An empty registry with one kernel, in a process where kernels may serve a CPU."""
    for name, value in {
        "_kernels": {},
        "_offered": [],
        "_import_errors": [],
        "_requested": "auto",
        "_INTERPRETED": True,
    }.items():
        monkeypatch.setattr(backend, name, value)
    backend.register_kernel("product", kernel, lambda tensor, dtype=torch.float32: dtype == torch.float32)


def test_auto_uses_a_kernel_that_fits() -> None:
    assert backend.chosen("product", HERE) is kernel
    assert backend.chosen("product", HERE, torch.float64) is None
    assert backend.chosen("sum", HERE) is None


def test_auto_uses_no_kernel_on_a_cpu_or_in_a_compiled_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if backend.chosen("product", x) is None else x - 1

    assert torch.equal(f(HERE), HERE - 1)
    assert torch.equal(torch.compile(f, backend="eager", fullgraph=True)(HERE), HERE + 1)
    torch.compiler.reset()
    monkeypatch.setattr(backend, "_INTERPRETED", False)
    backend.offer("no.such.module")
    assert torch.equal(f(HERE), HERE + 1)
    assert backend._offered  # still not imported


def test_eager_uses_no_kernel() -> None:
    with backend.choosing("eager"):
        assert backend.chosen("product", HERE) is None


def test_a_request_for_triton_fails_without_a_kernel() -> None:
    with backend.choosing("triton"):
        assert backend.chosen("product", HERE) is kernel
        with pytest.raises(
            BackendUnavailable, match=r"'product' with a tensor on cpu, torch.float64.*choosing\('auto'\)"
        ):
            backend.chosen("product", HERE, torch.float64)
        with pytest.raises(BackendUnavailable, match="'sum'"):
            backend.chosen("sum", HERE)


def test_the_error_says_why_kernels_are_missing() -> None:
    backend.offer("no_such_module")
    assert backend.chosen("sum", HERE) is None
    with backend.choosing("triton"), pytest.raises(BackendUnavailable, match="No module named 'no_such_module'"):
        backend.chosen("sum", HERE)


def test_contexts_nest_and_are_left_on_an_error() -> None:
    with backend.choosing("eager"):
        with backend.choosing("auto"):
            assert backend.chosen("product", HERE) is kernel
        assert backend.chosen("product", HERE) is None
    with pytest.raises(ZeroDivisionError), backend.choosing("eager"):
        raise ZeroDivisionError
    assert backend.chosen("product", HERE) is kernel


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"'cuda'.*'auto', 'eager', 'triton'"), backend.choosing("cuda"):  # pyright: ignore[reportArgumentType]
        pass


MODEL = """
import sys, torch, flipout
model = flipout.perturb(torch.nn.Linear(3, 4), flipout.Gaussian(0.5))
x = torch.ones(2, 3)
def output():
    with flipout.hold(model, seed=3):
        return model(x)
"""


def test_names_of_version_0_3_still_work() -> None:
    assert not {"using", "register"} & vars(backend).keys()  # so that completion shows the new ones alone
    assert getattr(backend, "using") is backend.choosing  # noqa: B009
    assert getattr(backend, "register") is backend.register_kernel  # noqa: B009
    with pytest.raises(AttributeError, match="has no attribute 'use'"):
        getattr(backend, "use")  # noqa: B009


def run(code: str, **environment: str) -> None:
    """Run code in a new process, where it can be seen what gets imported."""
    subprocess.run(
        [sys.executable, "-W", "error", "-c", MODEL + code],
        check=True,
        cwd=Path(flipout.__file__).parents[1],
        env={**{k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}, **environment},
    )


def test_triton_is_not_imported_on_a_cpu() -> None:
    run("output(); assert 'triton' not in sys.modules")


def test_everything_falls_back_without_triton() -> None:
    code = """
sys.modules["triton"] = None
output()
try:
    with flipout.backend.choosing("triton"):
        output()
except flipout.errors.BackendUnavailable as error:
    assert "triton" in str(error), error
else:
    raise AssertionError("no error")
"""
    run(code, TRITON_INTERPRET="1")


def test_the_interpreter_is_used_where_the_environment_asks_for_it() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    code = """
interpreted = output()
assert "flipout.ops.triton" in sys.modules
with flipout.backend.choosing("eager"):
    torch.testing.assert_close(interpreted, output())
"""
    run(code, TRITON_INTERPRET="1")
