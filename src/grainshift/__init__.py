"""Grainshift makes a PyTorch model retune its own execution while it runs."""

__version__ = "0.1.0"
