"""The hardware abstraction layer: facts, rates and sensors of this computer. Knows no model."""

from grainshift.machine.cache_model import Traffic, Work, model_traffic
from grainshift.machine.facts import find_machine
from grainshift.machine.kept import keep_rates, load_rates
from grainshift.machine.modelled import best_rates, with_rates
from grainshift.machine.rates import measure_rates
from grainshift.machine.sensors import Sensors, sampling_cost_s

__all__ = [
    "Sensors",
    "Traffic",
    "Work",
    "best_rates",
    "find_machine",
    "keep_rates",
    "load_rates",
    "measure_rates",
    "model_traffic",
    "sampling_cost_s",
    "with_rates",
]
