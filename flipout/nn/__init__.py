"""torch's layers with stochastic weights: Parameters and one op call each."""

from .attention import MultiheadAttention
from .base import Perturbed
from .call import is_noisy, perturbations
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .declaration import Declaration
from .embedding import Embedding, EmbeddingBag
from .inputs import compute_dtype, rows_back, rows_first
from .linear import Linear
from .norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm, RMSNorm
from .parameters import Perturbations
from .recurrent import GRU, LSTM, RNN
from .recurrent_cells import GRUCell, LSTMCell, RNNCell
from .scaled import (
    RankOneConv1d,
    RankOneConv2d,
    RankOneConv3d,
    RankOneLinear,
    ScaledConv1d,
    ScaledConv2d,
    ScaledConv3d,
    ScaledLinear,
)

LAYERS: tuple[type[Perturbed], ...] = (
    Linear,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Embedding,
    EmbeddingBag,
    MultiheadAttention,
    LSTM,
    GRU,
    RNN,
    LSTMCell,
    GRUCell,
    RNNCell,
    LayerNorm,
    RMSNorm,
    GroupNorm,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    RankOneLinear,
    RankOneConv1d,
    RankOneConv2d,
    RankOneConv3d,
)

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Declaration",
    "Embedding",
    "EmbeddingBag",
    "GRUCell",
    "GroupNorm",
    "LSTMCell",
    "LayerNorm",
    "Linear",
    "MultiheadAttention",
    "Perturbations",
    "Perturbed",
    "RMSNorm",
    "RNNCell",
    "RankOneConv1d",
    "RankOneConv2d",
    "RankOneConv3d",
    "RankOneLinear",
    "ScaledConv1d",
    "ScaledConv2d",
    "ScaledConv3d",
    "ScaledLinear",
    "compute_dtype",
    "is_noisy",
    "perturbations",
    "rows_back",
    "rows_first",
]
