"""Figure 2a: Bayes by Backprop in large batches."""
