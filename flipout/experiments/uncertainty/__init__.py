"""What a Bayesian network does not know."""
