"""Language models trained without gradients, on what can be checked but not differentiated."""
