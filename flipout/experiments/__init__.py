"""The tables and figures of the paper, and the data that they need."""
