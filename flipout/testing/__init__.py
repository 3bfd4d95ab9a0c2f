"""Checks for any layer: of this library, of your own, or of another library."""

from ._check import CHECKS, assert_conforms, check
from ._claim import Claim
from ._ours import claim_of
from ._report import Check, Report

__all__ = ["CHECKS", "Check", "Claim", "Report", "assert_conforms", "check", "claim_of"]
