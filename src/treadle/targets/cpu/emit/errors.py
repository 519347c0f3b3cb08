"""What the CPU emitter refuses, one class per cause."""

from __future__ import annotations

from treadle.base.errors import InternalError, LimitError


class EmitUnsupported(LimitError):
    """A statement of the machine form that has no CPU text."""

    code = "emit/cpu-unsupported"


class EmitFeature(LimitError):
    """A statement needs a CPU feature that the text is not to be compiled for."""

    code = "emit/cpu-feature"


class EmitIllFormed(InternalError):
    """A machine program that the verifier of form should have refused."""

    code = "emit/cpu-ill-formed"


def unsupported(what: str, expected: str, hint: str = "choose another plan, or the universal one") -> EmitUnsupported:
    """The error for a form without text."""
    return EmitUnsupported(doing="emitting LLVM IR for the CPU", found=what, expected=expected, hint=hint)


def ill_formed(what: str, expected: str) -> EmitIllFormed:
    """The error for a program that should not have come here."""
    return EmitIllFormed(
        doing="emitting LLVM IR for the CPU", found=what, expected=expected, pass_name="targets.cpu.emit"
    )
