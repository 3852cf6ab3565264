"""The parts of `grainshift demo`: what is tuned, measured, followed and shown. Decides nothing."""
