"""torch_geometric: a node is an example unless the weights are shared."""

import copy

import torch
import torch_geometric.nn as pyg
from torch.func import functional_call

import flipout

from .oracle import weights_by_example

EDGES = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
NODES = 5


def test_a_node_sees_its_own_weight() -> None:
    plain = pyg.GCNConv(4, 4).double()
    model = flipout.perturb(copy.deepcopy(plain), flipout.Gaussian(0.3))
    x = torch.randn(NODES, 4).double()
    with flipout.hold(model, seed=1):
        actual = model(x, EDGES)
        weights = weights_by_example(model)
    rows = torch.stack([row_weights["lin.weight"] @ x[n] for n, row_weights in enumerate(weights)])
    identity = {"lin.weight": torch.eye(4).double(), "bias": plain.bias}
    torch.testing.assert_close(actual, functional_call(plain, identity, (rows, EDGES)))


def test_a_graph_that_shares_its_weights() -> None:
    plain = pyg.GCN(4, 8, 2, 3).double().eval()
    model = flipout.perturb(copy.deepcopy(plain), flipout.Gaussian(0.3), scheme="shared")
    x = torch.randn(NODES, 4).double()
    with flipout.hold(model, seed=1):
        actual = model(x, EDGES)
        weights = weights_by_example(model)[0]
    assert sorted(weights) == ["convs.0.lin.weight", "convs.1.lin.weight"]
    torch.testing.assert_close(actual, functional_call(plain, weights, (x, EDGES)))


def test_isomorphism_networks_share_their_weights() -> None:
    """A GIN adds up the neighbours before its layers, so nodes with weights of their own would be mixed on purpose."""
    plain = pyg.GIN(4, 8, 2, 3).double().eval()
    model = flipout.perturb(copy.deepcopy(plain), flipout.Gaussian(0.3), scheme="shared")
    x = torch.randn(NODES, 4).double()
    with flipout.hold(model, seed=1):
        actual = model(x, EDGES)
        weights = weights_by_example(model)[0]
    assert len([name for name in weights if name.endswith("weight")]) == 4
    torch.testing.assert_close(actual, functional_call(plain, weights, (x, EDGES)))
    noisy = flipout.perturb(copy.deepcopy(plain), flipout.Gaussian(0.3))
    with flipout.hold(noisy, seed=1):
        noisy(x, EDGES)
        assert len(weights_by_example(noisy)) == NODES  # a node is an example
