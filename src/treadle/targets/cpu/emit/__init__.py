"""The last step on the CPU: a judged machine program as LLVM IR text.

From the bottom: `text` writes functions, `lanes` vectors; `index` and `masks` evaluate index expressions; `layouts` and
`registers` keep fragments; `places`, `moves`, `access` find and move vectors; `arith`, `casts`, `functions` and
`remainder` compute; `folds`, `pairs` (with `fours` and `owed`), `tiles` fold and contract, `searches` skips folds of
nothing; `statements`, `scope`, `control` put statements in order; `workspace` places buffers; `program` is the whole.
"""

from treadle.targets.cpu.emit.program import EmittedText, emit
from treadle.targets.cpu.emit.workspace import Workspace

__all__ = ["EmittedText", "Workspace", "emit"]
