"""Corrupted pictures: how accuracy and calibration fall, and what rejecting doubtful pictures saves."""
