"""Linear regression, where the exact posterior is known."""
