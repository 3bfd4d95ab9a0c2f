"""The live view: curves of a run while it goes on."""
