"""The last step on CUDA: a judged machine program as CUDA C++ with inline PTX, for sm_90a and, without Hopper's
instructions, sm_80.

From the bottom: `prelude` holds the device functions, `index` writes index expressions, `values`, `casts`, `functions`,
`arith` scalars; `fragments` resolves distributions, `storage` places memory, `scope` is where a statement stands;
`access`, `compute`, `matrix`, `copies`, `syncs` are the statements; `flight`, `counters` facts about a body; `control`
puts statements in order; `program` is the whole, `launch` what a call needs.
"""

from treadle.targets.cuda.emit.emitted import EmittedCuda, KernelLaunchSpec
from treadle.targets.cuda.emit.launch import Call, PreparedLaunch, cleared_bytes, prepare, workspace_bytes
from treadle.targets.cuda.emit.program import emit

__all__ = [
    "Call",
    "EmittedCuda",
    "KernelLaunchSpec",
    "PreparedLaunch",
    "cleared_bytes",
    "emit",
    "prepare",
    "workspace_bytes",
]
