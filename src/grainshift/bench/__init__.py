"""Measures Grainshift beside its peers. Knows nothing of how a model is tuned."""
