"""Which Python objects name a dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.base.errors import TreadleError
from treadle.base.source import Span
from treadle.dtype.formats import BY_NAME, DType, from_numpy
from treadle.lang.errors import BadArgument

_IMPORT = "import it from treadle, for example: from treadle import f32"


def as_dtype(x: Any, doing: str, span: Span | None = None, hint: str = _IMPORT) -> DType:
    """The dtype that `x` names: a dtype, its name or that of NumPy (`"float32"`), a NumPy dtype or scalar type.

    *Errors*: `capture/argument`.
    """
    if isinstance(x, DType):
        return x
    if isinstance(x, str) and x in BY_NAME:
        return BY_NAME[x]
    if isinstance(x, (type, np.dtype)):
        try:
            return from_numpy(x)
        except (TypeError, TreadleError):
            pass
    if isinstance(x, str):
        try:
            named = np.dtype(x)
            if named.name == x:  # whole names only: NumPy's "f8" is no 8-bit format
                return from_numpy(named)
        except (TypeError, ValueError, TreadleError):
            pass
    raise BadArgument(
        doing=doing,
        found=f"{x!r}",
        expected=f"a dtype: {', '.join(BY_NAME)}",
        hint=hint,
        span=span,
    )
