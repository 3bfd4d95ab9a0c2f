"""Which noise estimates best: the error of an update under every scheme."""
