"""The values of the design and its three contracts. No torch, clock, environment or disk."""
