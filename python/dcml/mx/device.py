"""Devices, of which there is one: the processor.

The one idea: programs that name a device run, and those that ask for a GPU are told that there is none.
Must not know: arrays.
"""
from .. import _core


class Device:
    """A device by type and number, as ``cpu(0)``."""

    __slots__ = ("device_type", "device_id")

    def __init__(self, device_type="cpu", device_id=0):
        if isinstance(device_type, Device):
            device_type, device_id = device_type.device_type, device_type.device_id
        if device_type not in ("cpu", "cpu_pinned", "cpu_shared"):
            raise _core.DeviceError(f"there is no device {device_type!r}; arrays live on the cpu")
        object.__setattr__(self, "device_type", device_type)
        object.__setattr__(self, "device_id", int(device_id))

    def __setattr__(self, name, value):
        raise AttributeError("a device does not change")

    def __eq__(self, other):
        return isinstance(other, Device) and (self.device_type, self.device_id) == (other.device_type, other.device_id)

    def __hash__(self):
        return hash((self.device_type, self.device_id))

    def __repr__(self):
        return f"{self.device_type}({self.device_id})"


def cpu(device_id=0):
    """The processor; the number is only a name."""
    return Device("cpu", device_id)


def gpu(device_id=0):
    """Raises DeviceError."""
    return Device("gpu", device_id)


def num_gpus():
    """0."""
    return 0


def current_device():
    """The device that arrays are made on."""
    return Device()


def check(device):
    """Raises DeviceError where a program asks for another device than the processor."""
    if device is not None and not isinstance(device, Device) and str(device):
        Device(str(device).partition("(")[0])
