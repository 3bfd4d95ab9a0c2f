"""Five corruptions of pictures at five strengths. Lengths are relative to the picture, so that small ones serve too.

They run on the device of the pictures. Noise is drawn on the CPU, so that it is the same on every device.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..uncertainty.shifts import rotated

Corruption = Callable[[Tensor, int, torch.Generator], Tensor]
STRENGTHS = (1, 2, 3, 4, 5)


def noise(x: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Add Gaussian noise to every pixel."""
    std = (0.04, 0.08, 0.12, 0.18, 0.26)[strength - 1]
    return (x + 255 * std * torch.randn(x.shape, generator=generator).to(x.device)).clamp(0, 255)


def blur(x: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Blur with a Gaussian, whose standard deviation is 0.4 to 2 pixels for a height of 32."""
    std = (0.4, 0.7, 1.0, 1.5, 2.0)[strength - 1] * x.shape[2] / 32
    reach = max(math.ceil(3 * std), 1)
    at = torch.arange(-reach, reach + 1)
    weights = torch.softmax(-at.square() / (2 * std**2), 0)
    kernel = torch.outer(weights, weights).to(x).expand(x.shape[1], 1, -1, -1)
    return F.conv2d(F.pad(x, (reach,) * 4, mode="reflect"), kernel, groups=x.shape[1])


def contrast(x: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Pull every pixel towards the mean of its picture."""
    kept = (0.75, 0.5, 0.35, 0.2, 0.1)[strength - 1]
    mean = x.mean((1, 2, 3), keepdim=True)
    return mean + kept * (x - mean)


def pixelate(x: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Average the picture down to fewer pixels, and blow these up again."""
    kept = (0.85, 0.7, 0.55, 0.4, 0.3)[strength - 1]
    small = [max(round(kept * size), 1) for size in x.shape[2:]]
    return F.interpolate(F.interpolate(x, small, mode="area"), list(x.shape[2:]), mode="nearest")


def rotation(x: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Rotate about the centre; the corners become black."""
    return rotated(x, (10, 20, 30, 45, 60)[strength - 1])


CORRUPTIONS: dict[str, Corruption] = {
    "noise": noise,
    "blur": blur,
    "contrast": contrast,
    "pixelate": pixelate,
    "rotation": rotation,
}
