"""Other ways to regularise LSTM language models, for comparison with weight noise: dropout and zoneout."""

from ._embedding import EmbeddingDropout, embedding_dropout
from ._locked import LockedDropout
from ._lstm import RegularizedLSTM
from ._recurrent_dropout import RecurrentDropoutLSTM
from ._rules import Rules
from ._variational import VariationalLSTM
from ._zaremba import ZarembaLSTM
from ._zoneout import ZoneoutLSTM

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
