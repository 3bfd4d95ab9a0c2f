"""The time of an update against the size of the network."""
