"""The meaning of pointwise operations on arrays that broadcast: those of the language, and those of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.dtype.convert import bitcast, convert
from treadle.evaluate import scalar
from treadle.ir.ops.elementwise import Bitcast, Cast, Elementwise, Full
from treadle.ir.ops.intrinsic import Intrinsic, Meaning

Array = NDArray[Any]


def apply(op: Elementwise, arrays: Sequence[Array]) -> Array:
    """The elements of the result, from those of the operands."""
    if isinstance(op, Intrinsic):
        return computed(op.meaning, arrays)
    return scalar.apply(op.fn, op.args[-1].type.dtype, *arrays)


def computed(meaning: Meaning, arrays: Sequence[Array]) -> Array:
    """What the body of an intrinsic gives for arrays that broadcast."""
    found: dict[str, Array] = {p.name: a for p, a in zip(meaning.params, arrays, strict=True)}
    for op in meaning.body.ops:
        match op:
            case Elementwise():
                made = apply(op, [found[a.name] for a in op.args])
            case Cast():
                made = convert(found[op.source.name], op.source.type.dtype, op.dtype, op.saturate)
            case Bitcast():
                made = bitcast(found[op.source.name], op.source.type.dtype, op.dtype)
            case _:
                assert isinstance(op, Full) and op.number is not None
                made = np.asarray(op.number).astype(op.result.type.dtype.numpy)
        found[op.result.name] = made
    return found[meaning.body.yields[0].name]
