"""torch's layers with stochastic weights: Parameters and one op call each."""

from .attention import MultiheadAttention
from .base import Perturbed
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .embedding import Embedding, EmbeddingBag
from .linear import Linear
from .norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm, RMSNorm
from .recurrent import GRU, LSTM, RNN
from .recurrent_cells import GRUCell, LSTMCell, RNNCell

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
)

__all__ = ["Perturbed", *(layer.__name__ for layer in LAYERS)]
