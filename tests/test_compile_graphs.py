"""What a compiled graph is made of: few nodes, and no activations beyond the plain model's kept for backward."""

from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

import flipout
from tests.networks import gradients

WIDTH, TOKENS, BATCH = 32, 24, 4


class Block(nn.Module):
    """Four products of one input and one of another, as a transformer has."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.branches = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(4))
        self.out = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        normal = self.norm(x)
        first, *others = (branch(normal) for branch in self.branches)
        for other in others:
            first = first * torch.nn.functional.silu(other)
        return x + self.out(first)


class Graphs:
    """A backend that runs the graphs as they are, and keeps them."""

    def __init__(self) -> None:
        self.forward: fx.GraphModule
        self.backward: fx.GraphModule

    def __call__(self, module: fx.GraphModule, inputs: list[Tensor]) -> Any:
        compile: Any = aot_module_simplified  # its types leave out what partial gives
        return compile(
            module,
            inputs,
            fw_compiler=partial(self._keep, "forward"),
            bw_compiler=partial(self._keep, "backward"),
            partition_fn=min_cut_rematerialization_partition,
            decompositions=select_decomp_table(),
        )

    def _keep(self, name: str, graph: fx.GraphModule, _: list[Tensor]) -> Any:
        setattr(self, name, graph)
        return make_boxed_func(graph.forward)

    @property
    def kept(self) -> Counter[int]:
        """Numbers of each tensor that the forward graph hands to the backward graph, without a batch's gradients."""
        places = (node for node in self.backward.graph.nodes if node.op == "placeholder")
        return Counter(n.meta["val"].numel() for n in places if "tangents" not in n.name and "val" in n.meta)


def traced(distribution: flipout.Distribution | None) -> Graphs:
    torch.manual_seed(0)
    torch.compiler.reset()
    model: nn.Module = nn.Sequential(Block(), Block())
    if distribution is not None:
        flipout.perturb(model, distribution)
    graphs = Graphs()
    fast = torch.compile(model, backend=graphs, fullgraph=True)
    x = torch.randn(BATCH, TOKENS, WIDTH, requires_grad=True)
    expected = []
    for call in (model, fast):
        model.zero_grad()
        torch.manual_seed(5)
        y = call(x)
        y.square().sum().backward()
        expected.append((y.detach(), gradients(model)))
    torch.testing.assert_close(expected[1], expected[0], rtol=1e-4, atol=1e-4)
    torch.compiler.reset()
    return graphs


@pytest.mark.parametrize("distribution", [flipout.Gaussian(0.1), flipout.MeanField(std=0.1)], ids=["fixed", "learned"])
def test_a_layer_adds_few_nodes(distribution: flipout.Distribution) -> None:
    """Traced, signs and noise were about 100 nodes of each of the ten layers."""
    plain, noisy = traced(None), traced(distribution)
    for name in ("forward", "backward"):
        added = len(getattr(noisy, name).graph.nodes) - len(getattr(plain, name).graph.nodes)
        assert added <= 10 * 25, (name, added)


@pytest.mark.parametrize("distribution", [flipout.Gaussian(0.1), flipout.MeanField(std=0.1)], ids=["fixed", "learned"])
def test_no_more_activations_are_kept(distribution: flipout.Distribution) -> None:
    """A flipped input s ∘ x is made again from x, and noise from its seed; ΔŴ and ρ are as large as weights."""
    activations = [BATCH * TOKENS * WIDTH, 2 * BATCH * TOKENS * WIDTH]
    plain, noisy = traced(None).kept, traced(distribution).kept
    assert sum(size * noisy[size] for size in activations) <= sum(size * plain[size] for size in activations)
    assert all(noisy[size] > 0 for size in activations)
    weights = 2 * WIDTH * WIDTH
    extra = 10 if isinstance(distribution, flipout.Gaussian) else 20
    assert noisy[weights] <= plain[weights] + extra


def test_transforms_inside_a_compiled_function_see_through() -> None:
    model = flipout.perturb(nn.Linear(6, 4), flipout.MeanField(std=0.2))
    batches = torch.randn(5, 3, 6)
    parameters: dict[str, Tensor] = dict(model.named_parameters())

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, parameters, (x,)).square().sum()

    def slopes(batches: Tensor) -> dict[str, Tensor]:
        return torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, batches)

    fast = torch.compile(slopes, backend="aot_eager", fullgraph=True)
    with flipout.hold(model, seed=3):
        torch.testing.assert_close(fast(batches), slopes(batches))


@pytest.mark.parametrize("softplus", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torch_checks_the_noise(softplus: bool, dtype: torch.dtype) -> None:
    factor, seed = torch.randn(5, 7, requires_grad=True), torch.tensor(11)
    inputs = (factor, seed, [5, 7], "normal", torch.float32, dtype, softplus, True, 2**60 + 1, 7, 0, 3)
    torch.library.opcheck(torch.ops.flipout.scaled_noise.default, inputs)


@pytest.mark.parametrize("features", [8, 5, 130])
def test_torch_checks_the_signs(features: int) -> None:
    inputs = (torch.tensor(11), 2**60 + 1, [0, 1], [features, 3], 2, 4, torch.float32)
    torch.library.opcheck(torch.ops.flipout.drawn_signs.default, inputs)
