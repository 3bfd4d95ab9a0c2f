"""The rivals of weight noise in LSTM language models: dropout of words, inputs, states and updates, and zoneout."""

from .base import RegularizedLSTM, Rules
from .embedding import EmbeddingDropout, embedding_dropout
from .locked import LockedDropout
from .recurrent import RecurrentDropoutLSTM
from .variational import VariationalLSTM
from .zaremba import ZarembaLSTM
from .zoneout import ZoneoutLSTM

__all__ = [
    "EmbeddingDropout",
    "LockedDropout",
    "RecurrentDropoutLSTM",
    "RegularizedLSTM",
    "Rules",
    "VariationalLSTM",
    "ZarembaLSTM",
    "ZoneoutLSTM",
    "embedding_dropout",
]
