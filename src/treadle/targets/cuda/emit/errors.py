"""What the CUDA emitter refuses, one class per cause."""

from __future__ import annotations

from treadle.base.errors import InternalError, LimitError


class CudaEmitUnsupported(LimitError):
    """A statement of the machine form that has no CUDA text."""

    code = "emit/cuda-unsupported"


class CudaExtentTooLarge(LimitError):
    """A launch whose extents are larger than the kernel's index arithmetic holds."""

    code = "emit/cuda-extent"


class CudaEmitIllFormed(InternalError):
    """A machine program that the verifier of form should have refused."""

    code = "emit/cuda-ill-formed"


def unsupported(
    found: str, expected: str, hint: str = "choose another plan, or the universal one"
) -> CudaEmitUnsupported:
    """The error for a form without text."""
    return CudaEmitUnsupported(doing="emitting CUDA C++", found=found, expected=expected, hint=hint)


def ill_formed(found: str, expected: str) -> CudaEmitIllFormed:
    """The error for a program that should not have come here."""
    return CudaEmitIllFormed(doing="emitting CUDA C++", found=found, expected=expected, pass_name="targets.cuda.emit")
