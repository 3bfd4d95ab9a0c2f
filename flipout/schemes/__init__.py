"""WHO shares the noise."""

from ..errors import InvalidArgument
from .base import Scheme
from .flipout import Flipout
from .independent import Independent
from .local_reparam import LocalReparam
from .low_rank import LowRank
from .shared import Shared

__all__ = ["Flipout", "Independent", "LocalReparam", "LowRank", "Scheme", "Shared", "scheme_of"]

_BY_NAME = {scheme.name: scheme for scheme in (Shared(), Flipout(), Independent(), LocalReparam(), LowRank())}


def scheme_of(scheme: str | Scheme) -> Scheme:
    if isinstance(scheme, Scheme):
        return scheme
    if scheme not in _BY_NAME:
        raise InvalidArgument(
            f"scheme={scheme!r}: expected one of {sorted(_BY_NAME)}, or a Scheme such as Flipout(group=8)."
        )
    return _BY_NAME[scheme]
