"""How torch's transformers lay out the inputs of the layers inside them."""

from torch import nn

_BLOCKS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_STACKS = (nn.TransformerEncoder, nn.TransformerDecoder)
_TRANSFORMERS = (nn.Transformer, *_STACKS, *_BLOCKS)


def transformer_batch_dim(model: nn.Module, label: str) -> int:
    """Return the example's dimension in the transformer around a layer, 0 if there is none."""
    parts = label.split(".")
    for depth in range(len(parts) - 1, -1, -1):
        parent = model.get_submodule(".".join(parts[:depth]))
        if not isinstance(parent, _TRANSFORMERS):
            continue  # the walk below is quadratic in the modules: it took 1.3 of 1.5 s for 30 layers of Llama
        attention = next((m for m in parent.modules() if isinstance(m, nn.MultiheadAttention)), None)
        if attention is not None:
            return 0 if attention.batch_first else 1
    return 0


def takes_sequences(model: nn.Module, label: str) -> bool:
    """Return True for a layer of torch's own transformer, whose input is a batch of sequences or a single one."""
    owner, _, name = label.rpartition(".")
    parent = model.get_submodule(owner)
    if isinstance(parent, _BLOCKS):
        return name in ("linear1", "linear2", "norm1", "norm2", "norm3")
    return isinstance(parent, _STACKS) and name == "norm"
