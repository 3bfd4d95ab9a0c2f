"""RANDOMNESS: bits of a seed and a place, signs and noise made of them, and the draw of a forward pass."""
