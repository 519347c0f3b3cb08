"""What can go wrong between text and artifact, one class per cause."""

from __future__ import annotations

from treadle.base.errors import InternalError, LimitError, UserError


class FeatureUnknown(UserError):
    """A CPU feature flag that no table here knows."""

    code = "toolchain/feature-unknown"


class FeatureAbsent(InternalError):
    """The text needs a CPU feature that it was not to be compiled for. LLVM would abort the process."""

    code = "toolchain/feature-absent"


class IntrinsicUnknown(InternalError):
    """A target intrinsic whose needed feature is not in the table: no rule means no."""

    code = "toolchain/intrinsic-unknown"


class TextForbidden(InternalError):
    """LLVM IR that takes target decisions into its own hands, or inline assembly outside the isolated mode."""

    code = "toolchain/text-forbidden"


class IrRejected(InternalError):
    """LLVM's parser or verifier refused the emitted text."""

    code = "toolchain/ir-rejected"


class CompilerDied(InternalError):
    """LLVM aborted, or took too long, in the process that compiles apart from the user's."""

    code = "toolchain/compiler-died"


class NvrtcMissing(LimitError):
    """The CUDA compiler is an optional extra and is not installed."""

    code = "toolchain/nvrtc-missing"


class CudaRejected(InternalError):
    """NVRTC or ptxas refused the emitted CUDA text."""

    code = "toolchain/cuda-rejected"


class NvrtcFailed(LimitError):
    """NVRTC is installed and could not do its work for a reason that is not the text."""

    code = "toolchain/nvrtc-failed"


class DisassemblerMissing(LimitError):
    """The disassembler is an optional extra and is not installed."""

    code = "toolchain/disassembler-missing"


class DisassemblerFailed(LimitError):
    """The disassembler could not read an artifact."""

    code = "toolchain/disassembler-failed"
