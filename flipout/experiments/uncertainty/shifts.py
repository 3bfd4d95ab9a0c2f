"""Pictures that a network has not seen the like of, made from those that it has: (N, 1, height, width), 0 to 255."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def rotated(x: Tensor, degrees: float) -> Tensor:
    """About the centre; what comes in from outside is black."""
    if degrees % 360 == 0:
        return x
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = torch.tensor([[cos, -sin, 0.0], [sin, cos, 0.0]], device=x.device)
    grid = F.affine_grid(turn.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def shifted(x: Tensor, share: float = 0.25) -> Tensor:
    """Right and down, by a share of the picture."""
    down, right = (round(share * size) for size in x.shape[2:])
    return F.pad(x, (right, 0, down, 0))[:, :, : x.shape[2], : x.shape[3]]


def inverted(x: Tensor) -> Tensor:
    return 255 - x


def shuffled(x: Tensor) -> Tensor:
    """The four quarters, each in the place of the one across."""
    return x.roll((x.shape[2] // 2, x.shape[3] // 2), (2, 3))


def silhouettes(x: Tensor) -> Tensor:
    """Two digits and their mirror images on top of each other, thickened: symmetric shapes, as Fashion-MNIST's are."""
    both = torch.maximum(x, x.roll(1, 0))
    reach = x.shape[3] // 16
    return F.max_pool2d(torch.maximum(both, both.flip(3)), 2 * reach + 1, 1, reach)


SHIFTS: dict[str, Callable[[Tensor], Tensor]] = {
    "rotated by 90°": lambda x: rotated(x, 90),
    "shifted by a quarter": shifted,
    "inverted": inverted,
    "quarters swapped": shuffled,
    "silhouettes": silhouettes,
}
