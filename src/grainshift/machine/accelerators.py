"""Finds the devices beside the CPU through torch.cuda, by NVML's names. Knows no CPU."""

from grainshift.core.machine import Accelerator


def find_accelerators() -> tuple[Accelerator, ...]:
    """The CUDA devices that torch can use; none on a machine or a torch without CUDA."""
    import torch

    if not torch.cuda.is_available():
        return ()
    found = (torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count()))
    return tuple(
        Accelerator(_nvml_name(number) or device.name, int(device.total_memory))
        for number, device in enumerate(found)
    )


def _nvml_name(number: int) -> str:
    try:
        import pynvml
    except ImportError:
        return ""
    try:
        pynvml.nvmlInit()
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(number))
    except pynvml.NVMLError:
        return ""
    return name.decode() if isinstance(name, bytes) else str(name)
