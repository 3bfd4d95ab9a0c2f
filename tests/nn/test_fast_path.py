"""Torch's transformers call their layers while one of them is noisy."""

import pytest
import torch
from torch import nn

import flipout
from flipout.schemes import SchemeName
from tests.networks import GAUSSIAN, encoder
from tests.nn.transformers import HEADS, WIDTH, options
from tests.oracles import Case, equal, loop, tensor


@pytest.mark.parametrize("make", [encoder, lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)])
def test_converted_layers_are_not_skipped_by_the_transformer_fast_path(make):
    model = flipout.perturb(make(), GAUSSIAN).eval()
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        mean = model(x)
        with flipout.sampling(model):
            assert torch.backends.mha.get_fastpath_enabled()  # this switch belongs to the whole process
            assert not torch.equal(model(x), model(x))
        with flipout.hold(model):
            assert torch.equal(model(x), model(x))
            assert not torch.allclose(model(x), mean, atol=1e-3)
        assert torch.backends.mha.get_fastpath_enabled()
        torch.testing.assert_close(model(x), mean)


@pytest.mark.parametrize("scheme", ["shared", "flipout", "independent"])
def test_the_fast_path_keeps_the_noise(scheme: SchemeName) -> None:
    """In eval mode without gradients, torch's transformers would read the means instead of calling the layers."""
    module = nn.TransformerEncoderLayer(WIDTH, HEADS, **options(True, False)).double().eval()
    case = Case(module, (tensor(3, 2, WIDTH),))
    model = nn.TransformerEncoderLayer(WIDTH, HEADS, **options(True, False)).double().eval()
    model.load_state_dict(module.state_dict())
    flipout.perturb(model, flipout.Gaussian(0.3), scheme=scheme)
    with torch.no_grad():
        mean = model(*case.inputs)
        with flipout.hold(model):
            equal([model(*case.inputs)], loop(case, model))
            assert not torch.allclose(model(*case.inputs), mean)
        with flipout.sampling(model):
            assert not torch.allclose(model(*case.inputs), mean)
        assert torch.equal(model(*case.inputs), module(*case.inputs))
