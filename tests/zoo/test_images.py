"""timm and torchvision against the loop over the examples, where torchvision is installed."""

from typing import Any

import pytest
import torch

import flipout
from flipout import errors

from . import images
from .oracle import Family, compare

torchvision = pytest.importorskip("torchvision")
BOUND = 1e-10


def family(library: str, name: str, settings: dict[str, Any], size: int, **more: Any) -> Family:
    """Return a model of one of the two libraries."""

    def make() -> Any:
        if library == "timm":
            return pytest.importorskip("timm").create_model(name, num_classes=5, **settings)
        model = getattr(torchvision.models, name)(num_classes=5)
        for weight in (parameter for parameter in model.parameters() if parameter.dim() > 1 and not parameter.any()):
            torch.nn.init.normal_(weight, std=0.1)  # a ViT's head starts at 0, which hides all noise before it
        return model

    return Family(make, images.images(size), **more)


@pytest.mark.parametrize("name", images.TIMM)
def test_timm(name: str) -> None:
    assert compare(family("timm", name, *images.TIMM[name]), gradients=False) < BOUND


@pytest.mark.parametrize("name", images.TIMM_SHOWN)
def test_windows_of_timm(name: str) -> None:
    settings, size = images.TIMM_SHOWN[name]
    with pytest.raises(errors.ExampleCount, match="perturb a batch"):
        compare(family("timm", name, settings, size), gradients=False)
    shown = {"example_inputs": images.images(size)(3)}
    assert compare(family("timm", name, settings, size, options=shown), gradients=False) < BOUND


def test_standardised_weights_are_refused() -> None:
    """An NFNet computes each kernel from its weight by a norm over it."""
    timm = pytest.importorskip("timm")
    with pytest.warns(errors.LeftPlain, match=r"stem\.conv\.gain"):  # (out, 1, 1, 1), beside each weight
        model = flipout.perturb(timm.create_model("nf_regnet_b0", num_classes=5), flipout.Gaussian(0.1))
    with pytest.raises(errors.UnservedRead, match=r"stem\.conv\.weight: batch_norm at .*std_conv\.py"):
        model(images.images(32)(2)["x"].float())


@pytest.mark.slow
@pytest.mark.parametrize("name", images.TORCHVISION)
def test_torchvision(name: str) -> None:
    assert compare(family("torchvision", name, {}, images.TORCHVISION[name]), gradients=False) < BOUND


@pytest.mark.slow
@pytest.mark.parametrize("name", images.TORCHVISION_SHOWN)
def test_windows_of_torchvision(name: str) -> None:
    """Swin reads the weights of `attn.qkv` and `attn.proj` without calling the layers."""
    size = images.TORCHVISION_SHOWN[name]
    shown = {"example_inputs": images.images(size)(3)}
    assert compare(family("torchvision", name, {}, size, options=shown), gradients=False) < BOUND
