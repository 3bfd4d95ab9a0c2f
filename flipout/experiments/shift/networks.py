"""A residual network for small pictures."""

import torch
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut; with another width or a stride, the shortcut is a 1×1 convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int, rate: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.dropout = nn.Dropout(rate)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.norm1(self.conv1(x)).relu())
        return (self.norm2(self.conv2(hidden)) + self.shortcut(x)).relu()


def resnet(channels: int, classes: int, width: int, blocks: int, rate: float = 0.0) -> nn.Sequential:
    """Return a ResNet with three stages of `blocks` blocks, and 6 · blocks + 2 layers. Each stage doubles the width."""
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for stage in range(3):
        outputs = width * 2**stage
        for block in range(blocks):
            layers.append(ResidualBlock(inputs, outputs, 2 if stage and not block else 1, rate))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(rate), nn.Linear(inputs, classes))


def dropout_on(model: nn.Module) -> None:
    """Set eval mode, except for dropout: each pass is then a sample of MC dropout."""
    model.eval()
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.train()


def moved(x: Tensor, generator: torch.Generator) -> Tensor:
    """Shift pictures (N, C, H, W) by up to an eighth of their size, and mirror half of them."""
    reach = x.shape[2] // 8
    padded = nn.functional.pad(x, (reach,) * 4)
    down, right = torch.randint(2 * reach + 1, (2, len(x), 1), generator=generator).to(x.device)
    rows = down + torch.arange(x.shape[2], device=x.device)
    columns = right + torch.arange(x.shape[3], device=x.device)
    is_mirrored = (torch.rand(len(x), 1, generator=generator) < 0.5).to(x.device)
    columns = torch.where(is_mirrored, columns.flip(1), columns)
    index = torch.arange(len(x), device=x.device)[:, None, None]
    return padded[index, :, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)
