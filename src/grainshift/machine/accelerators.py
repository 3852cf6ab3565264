"""Finds the devices beside the CPU by NVML, or by torch.cuda once the program uses it.

CUDA is never initialized from here: that costs memory, and forbids forked children to use it.
"""

from typing import Any

from grainshift.core.machine import Accelerator

_UNTOLD = Accelerator("CUDA device", 0)  # until the program itself begins to use it


def find_accelerators() -> tuple[Accelerator, ...]:
    """The CUDA devices that torch can use; none on a machine or a torch without CUDA."""
    import torch

    if torch.version.cuda is None:
        return ()
    return tuple(map(_device, range(torch.cuda.device_count())))


def _device(number: int) -> Accelerator:
    import torch

    if (told := _by_nvml(number)) is not None:
        return told
    cuda: Any = torch.cuda  # torch leaves parts of it untyped
    if not cuda.is_initialized():
        return _UNTOLD
    device = cuda.get_device_properties(number)
    return Accelerator(device.name, int(device.total_memory))


def _by_nvml(number: int) -> Accelerator | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(number)
        name: Any = pynvml.nvmlDeviceGetName(device)
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    except pynvml.NVMLError:
        return None
    return Accelerator(name.decode() if isinstance(name, bytes) else str(name), int(memory.total))
