"""HOW it is computed: arithmetic only."""
