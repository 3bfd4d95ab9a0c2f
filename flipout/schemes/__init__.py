"""WHO in the batch shares the noise."""

from ..errors import InvalidArgument
from .base import Scheme, SchemeName
from .flipout import Flipout
from .independent import Independent
from .local_reparam import LocalReparam
from .low_rank import LowRank
from .rank_one import RankOne
from .shared import Shared

__all__ = [
    "Flipout",
    "Independent",
    "LocalReparam",
    "LowRank",
    "RankOne",
    "Scheme",
    "SchemeName",
    "Shared",
    "scheme_of",
]

_SCHEMES = (Shared(), Flipout(), Independent(), LocalReparam(), LowRank(), RankOne())
_BY_NAME = {scheme.name: scheme for scheme in _SCHEMES}


def scheme_of(scheme: SchemeName | Scheme) -> Scheme:
    """Return the scheme of that name, or the scheme itself.

    Raises:
        InvalidArgument: There is no scheme of that name.
    """
    if isinstance(scheme, Scheme):
        return scheme
    if scheme not in _BY_NAME:
        raise InvalidArgument(
            f"scheme={scheme!r}: expected one of {sorted(_BY_NAME)}, or a Scheme such as Flipout(group=8)."
        )
    return _BY_NAME[scheme]
