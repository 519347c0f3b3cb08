"""4-bit elements in memory: two to a byte along the last axis, the earlier element in the low bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.dtype.convert import from_code, to_code
from treadle.dtype.formats import DType


def pack(array: NDArray[Any], dtype: DType) -> NDArray[np.uint8]:
    """The bytes of `array`. Shapes: the last axis is halved, an odd one rounded up, its last high bits zero."""
    assert dtype.bits == 4
    code = to_code(array, dtype)
    if code.shape[-1] % 2:
        code = np.concatenate([code, np.zeros((*code.shape[:-1], 1), np.uint8)], axis=-1)
    return code[..., 0::2] | (code[..., 1::2] << np.uint8(4))


def unpack(packed: NDArray[np.uint8], dtype: DType, extent: int) -> NDArray[Any]:
    """Inverse of `pack`. Requires: `extent` is the last axis of the array that was packed."""
    assert dtype.bits == 4 and packed.shape[-1] == (extent + 1) // 2
    code = np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1)
    return from_code(code.reshape(*packed.shape[:-1], -1)[..., :extent], dtype)
