"""Unknown pictures made from known ones: (N, 1, height, width), 0 to 255."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def rotated(x: Tensor, degrees: float) -> Tensor:
    """Rotate about the centre; the corners become black."""
    if degrees % 360 == 0:
        return x
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = torch.tensor([[cos, -sin, 0.0], [sin, cos, 0.0]], device=x.device)
    grid = F.affine_grid(turn.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def shifted(x: Tensor, share: float = 0.25) -> Tensor:
    """Shift right and down by a share of the picture."""
    down, right = (round(share * size) for size in x.shape[2:])
    return F.pad(x, (right, 0, down, 0))[:, :, : x.shape[2], : x.shape[3]]


def inverted(x: Tensor) -> Tensor:
    return 255 - x


def shuffled(x: Tensor) -> Tensor:
    """Swap the quarters that lie across from each other."""
    return x.roll((x.shape[2] // 2, x.shape[3] // 2), (2, 3))


def silhouettes(x: Tensor) -> Tensor:
    """Lay two digits and their mirror images over each other, and thicken: symmetric shapes like Fashion-MNIST's."""
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
