"""Tiny models of timm and torchvision. timm imports torchvision, which has no build for every torch."""

from collections.abc import Callable
from typing import Any

import torch

from .oracle import Inputs


def images(size: int) -> Callable[[int], Inputs]:
    """Return a function that makes a batch of images."""

    def batch(examples: int) -> Inputs:
        return {"x": torch.randn(examples, 3, size, size, dtype=torch.float64)}

    return batch


# Name, options and size of the images of timm's models.
TIMM: dict[str, tuple[dict[str, Any], int]] = {
    "mobilenetv3_small_050": ({}, 32),
    "beit_base_patch16_224": ({"img_size": 16, "depth": 1, "embed_dim": 32, "num_heads": 2}, 16),
    "eva02_tiny_patch14_224": ({"img_size": 28, "depth": 2}, 28),
    "convnext_atto": ({}, 32),
}
TIMM_SHOWN: dict[str, tuple[dict[str, Any], int]] = {
    "swin_tiny_patch4_window7_224": (
        {"img_size": 56, "depths": (2, 1), "embed_dim": 24, "num_heads": (2, 2), "window_size": 7},
        56,
    ),
}
TORCHVISION: dict[str, int] = {"resnet18": 32, "convnext_tiny": 32, "vit_b_32": 224}
TORCHVISION_SHOWN: dict[str, int] = {"swin_t": 64}
