"""Policies trained by evolution strategies."""
