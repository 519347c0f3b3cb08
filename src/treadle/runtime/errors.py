"""What can go wrong between an artifact and its result, one class per cause."""

from __future__ import annotations

from treadle.base.errors import InternalError, LimitError, UserError


class PlatformUnsupported(LimitError):
    """This operating system or processor has no worker pool here."""

    code = "runtime/platform"


class NativeCodeMissing(LimitError):
    """A piece of the runtime's own machine code is not cached, and there is no compiler to make it."""

    code = "runtime/no-native-code"


class WorkersInvalid(UserError):
    """A number of workers that is no positive integer."""

    code = "runtime/workers"


class ObjectUnusable(InternalError):
    """Bytes that are no object code of this machine."""

    code = "runtime/object-unusable"


class SymbolMissing(InternalError):
    """An object without an expected entry, or one that refers to a symbol this process lacks."""

    code = "runtime/symbol-missing"


class HostLacksFeatures(LimitError):
    """An object that was compiled for instructions this processor does not have."""

    code = "runtime/host-features"


class TilesRefused(LimitError):
    """The operating system does not let this process use the processor's tile registers."""

    code = "runtime/tiles-refused"


class OutOfMemory(LimitError):
    """The system gives no more memory for an output or a workspace."""

    code = "runtime/out-of-memory"


class BoundCalledWith(UserError):
    """A bound call that is given arguments."""

    code = "call/bound"


class KernelFailed(UserError):
    """A kernel ran and reported that a check of the program failed."""

    code = "runtime/check-failed"


class ArgumentCount(UserError):
    """A call with too many or too few arguments."""

    code = "array/count"


class NotAnArray(UserError):
    """An argument that offers none of the array protocols."""

    code = "array/not-an-array"


class DtypeUnsupported(UserError):
    """An array whose elements are of a type that the language does not have."""

    code = "array/dtype-unsupported"


class DtypeMismatch(UserError):
    """An array, or a number, of another dtype than the kernel was made for."""

    code = "array/dtype"


class RankMismatch(UserError):
    """An array with another number of axes than the kernel was made for."""

    code = "array/rank"


class Misaligned(UserError):
    """An array whose elements do not lie at multiples of their own size."""

    code = "array/misaligned"


class StrideUneven(UserError):
    """An array with a stride that is no multiple of its element size."""

    code = "array/stride"


class ReadOnly(UserError):
    """An output that may not be written."""

    code = "array/read-only"


class OutputOverlapsItself(UserError):
    """An output in which two positions are one element."""

    code = "array/output-overlap"


class MixedDevices(UserError):
    """Arguments of one call on different devices."""

    code = "array/devices"


class DriverMissing(LimitError):
    """The CUDA driver, or its optional Python bindings, cannot be loaded."""

    code = "cuda/no-driver"


class DeviceMissing(LimitError):
    """There is a CUDA driver and no device that fits."""

    code = "cuda/no-device"


class DriverTooOld(LimitError):
    """A CUDA driver that is older than the toolkit whose code it would have to load."""

    code = "cuda/driver-old"


class CudaFailed(InternalError):
    """A call of the CUDA driver failed."""

    code = "cuda/failed"


class CudaFault(InternalError):
    """A kernel of this process failed on the device; its context answers nothing any more."""

    code = "cuda/fault"


class DeviceOutOfMemory(LimitError):
    """The device has no more memory."""

    code = "cuda/out-of-memory"


class ModuleUnusable(InternalError):
    """Code that the driver does not load: damaged, or made for another driver or device."""

    code = "cuda/module"


class CaptureRefused(LimitError):
    """Something that cannot be part of a captured CUDA graph."""

    code = "cuda/capture"


class TensorMapInvalid(InternalError):
    """A tensor map that the hardware's rules do not allow."""

    code = "cuda/tensor-map"


class LaunchInvalid(InternalError):
    """A launch whose grid, block, cluster or shared memory the device's rules do not allow."""

    code = "cuda/launch"
