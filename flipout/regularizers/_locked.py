"""Locked dropout: one mask per sequence, the same at every time step."""

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..errors import InvalidInput
from ..ops.sequences import Sequences
from ._masks import check_probabilities, draw_mask


class LockedDropout(nn.Module):
    """Dropout with one mask per sequence, which is the same at every time step.

    The input is (time, N, features), or (N, time, features) with `batch_first`, (time, features) for one sequence, or a
    PackedSequence. The output has the same form.

    Args:
        p: Probability with which a feature of a sequence is dropped.
        batch_first: Whether the input is (N, time, features).

    Raises:
        InvalidArgument: If p is not in [0, 1).
        InvalidInput: If the input has another form; raised by the call.

    Example:
        >>> LockedDropout(0.4)(torch.randn(35, 20, 650))
    """

    def __init__(self, p: float, batch_first: bool = False) -> None:
        super().__init__()
        (self.p,) = check_probabilities(self, p=p)
        self.batch_first = batch_first

    def forward(self, input: Tensor | PackedSequence) -> Tensor | PackedSequence:
        data, dims = (input.data, (2,)) if isinstance(input, PackedSequence) else (input, (2, 3))
        if data.dim() not in dims or not data.is_floating_point():
            layout = "(N, time, features)" if self.batch_first else "(time, N, features)"
            raise InvalidInput(
                f"LockedDropout: input of shape {tuple(data.shape)} and dtype {data.dtype}; expected floating-point "
                f"{layout}, (time, features) for one sequence, or a PackedSequence."
            )
        if not (self.training and self.p):
            return input
        sequences = Sequences.of(input, self.batch_first)
        x = sequences.x
        return sequences.outputs(x * draw_mask(self.p, x, (len(x), 1, x.shape[-1])))

    def extra_repr(self) -> str:
        return f"p={self.p}, batch_first={self.batch_first}"
