"""RANDOMNESS: random bits from a seed and a counter, the signs and noise made from them, and the draw of a pass."""
