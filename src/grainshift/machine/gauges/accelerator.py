"""Free memory and use of the first CUDA device, once the program itself has begun to use it.

A context of our own would cost hundreds of megabytes, so none is ever made.
"""

from typing import Any, final

from grainshift.core.conditions import Figure
from grainshift.machine.gauges.gauge import Gauge, Ground, Moment


def open_accelerator(ground: Ground) -> Gauge | None:
    """The gauge of the first device; its figures begin with `accelerator_`."""
    return _Accelerator(_nvml_device()) if ground.machine.accelerators else None


def _nvml_device() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError:
        return None


@final
class _Accelerator:
    def __init__(self, nvml_device: Any) -> None:
        self._nvml_device = nvml_device

    def read(self, moment: Moment) -> tuple[Figure, ...]:
        import torch

        cuda: Any = torch.cuda  # torch leaves parts of it untyped
        figures = []
        if cuda.is_initialized():
            free_bytes, _total = cuda.mem_get_info(0)
            figures.append(Figure("accelerator_free_bytes", float(free_bytes)))
        if self._nvml_device is not None:
            figures.append(Figure("accelerator_use", _use(self._nvml_device)))
        return tuple(figures)

    def close(self) -> None:
        pass


def _use(device: Any) -> float:
    import pynvml

    try:
        return float(pynvml.nvmlDeviceGetUtilizationRates(device).gpu) / 100.0
    except pynvml.NVMLError as fault:
        raise OSError(str(fault)) from fault
