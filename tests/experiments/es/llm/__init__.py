"""Language models trained without gradients."""
