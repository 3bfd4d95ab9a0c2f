"""The private parts of torch that flipout uses do what flipout expects of them."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from flipout import _torch_internals as internals

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("owner", "name"),
    [("torch._C", "_current_graph_task_id"), ("torch.autograd", "_get_sequence_nr"), ("torch.nn.Module", "_call_impl")],
)
def test_a_torch_that_lacks_a_name_is_refused_at_import(owner: str, name: str) -> None:
    code = f"import torch; del {owner}.{name}; import flipout"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode != 0
    assert f"ImportError: torch {torch.__version__} has no" in run.stderr
    assert f".{name}, which flipout needs. Tested are 2.11 on a GPU and 2.13 on a CPU." in run.stderr


def test_a_backward_pass_has_a_number() -> None:
    numbers = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda _: numbers.append(internals.graph_task_id()))
    assert internals.graph_task_id() == -1
    y.sum().backward()
    assert numbers != [-1]
    assert len(numbers) == 1


def test_nodes_are_numbered_in_the_order_of_their_creation() -> None:
    x = torch.ones(2, requires_grad=True)
    first = internals.next_node_number()
    y = x * 2
    assert internals.next_node_number() == first + 1
    assert y.grad_fn is not None
    assert y.grad_fn._sequence_nr() == first  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_recomputation_knows_the_nodes_of_its_forward_pass(use_reentrant: bool) -> None:
    seen: list[list[int]] = []

    def function(x: Tensor) -> Tensor:
        seen.append(internals.backward_node_numbers())
        return x.sin()

    x = torch.ones(2, requires_grad=True)
    before = internals.next_node_number()
    y = torch.utils.checkpoint.checkpoint(function, x, use_reentrant=use_reentrant)
    after = internals.next_node_number()
    y.sum().backward()
    assert seen[0] == []
    assert all(before <= number < after for number in seen[1])
    assert len(seen[1]) == 1


def test_running_calls_of_a_module_are_counted() -> None:
    counts = []

    class Recursive(nn.Module):
        def forward(self, depth: int) -> None:
            counts.append(internals.running_calls(self, sys._getframe()))
            if depth:
                self(depth - 1)

    Recursive()(2)
    assert counts == [1, 2, 3]
    assert internals.running_calls(Recursive(), sys._getframe()) == 0
