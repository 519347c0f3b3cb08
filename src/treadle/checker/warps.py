"""J5 of contractions that a warp executes (`mma.sync`): every lane holds just what the instruction takes from it.

One statement is as many instructions as a warp has pieces of 16 rows and 8 columns of the destination. Of each piece a
lane must hold the four elements that the instruction leaves in it, and the elements of both operands that it reads from
that lane's registers. All of it is numbers, so it is tried at every lane, piece and register.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.expr import Expr
from treadle.checker.places import digit_values, places
from treadle.checker.verdict import Refused, Unsure
from treadle.hardware.layouts import WARP_ATOMS, warp_depth
from treadle.machine.form import Frag, FragRef, Mma

Array = NDArray[np.int64]
_MOST = 1 << 24


def check_warp_product(stmt: Mma, frags: Mapping[str, Frag], lets: Mapping[str, Expr], threads: int) -> None:
    """*Errors*: findings of J5."""
    pair, made = WARP_ATOMS[stmt.atom], frags[stmt.dst]
    if threads % 32 or len(made.shape) != 2 or made.shape[0] % 16 or made.shape[1] % 8:
        raise Refused("J5", f"{stmt.atom} into {made.shape} by {threads} threads", {"threads": threads})
    if len(stmt.contracted) != 1 or stmt.contracted[0] % (8 * pair):
        raise Refused("J5", f"{stmt.atom} contracts {stmt.contracted}", {"depth": 8 * pair})
    if not isinstance(stmt.a, FragRef) or not isinstance(stmt.b, FragRef):
        raise Unsure("J5", f"{stmt.atom} with an operand in memory", missing="operands in registers")
    lane = (np.arange(threads) % 32)[:, None]
    rows, columns = places(made.dist, made.shape, threads)
    if (rows % 8 != lane // 4).any() or (columns % 8 // 2 != lane % 4).any():
        raise Refused("J5", f"{made.name} does not lie as the accumulator of {stmt.atom} does", {})
    piece = rows // 16 * (made.shape[1] // 8) + columns // 8
    place = rows % 16 // 8 * 2 + columns % 2
    held: Array = np.sort(np.asarray(4 * piece + place, np.int64), axis=1)
    warp = held.reshape(threads // 32, 32, -1)
    order = held % 4 - np.arange(held.shape[1], dtype=np.int64) % 4
    whole = held.shape[1] % 4 == 0 and not order.any()
    if not whole or (np.diff(held, axis=1) <= 0).any() or (warp != warp[:, :1]).any():
        raise Refused("J5", f"a warp does not hold whole pieces of {made.name}", {})
    first = np.sort(piece, axis=1)[:, ::4]
    top, left = first // (made.shape[1] // 8) * 16, first % (made.shape[1] // 8) * 8
    depth = np.array([(a, b + s) for s in range(0, stmt.contracted[0], 8 * pair) for a, b in warp_depth(pair)])
    deep = lane[:, :, None] % 4 * depth[:, 0] + depth[:, 1]
    for half in range(2):
        row = (top + lane // 4 + 8 * half)[:, :, None]
        _held(frags, stmt.a, {"$0": row, "$2": deep}, lets, threads)
    _held(frags, stmt.b, {"$1": (left + lane // 4)[:, :, None], "$2": deep}, lets, threads)


def _held(frags: Mapping[str, Frag], ref: FragRef, env: dict[str, Any], lets: Mapping[str, Expr], threads: int) -> None:
    """Each thread holds the elements of an operand at these coordinates."""
    frag = frags.get(ref.name)
    if frag is None or ref.coords is None or not frag.dist:
        raise Unsure("J5", f"the operand {ref.name}", missing="a distributed fragment with coordinates")
    if sum(v.size for v in env.values()) > _MOST:
        raise Unsure("J5", f"{ref.name}: too many elements to compare", missing="smaller fragments")
    digits = digit_values(frag.dist, threads)
    for mode, digit in zip(frag.dist, digits, strict=True):
        if mode.who == "slot" or mode.axis is None or mode.size == 1:
            continue
        coord = ref.coords[mode.axis].substitute(dict(lets))
        whole = coord - Expr(tuple(t for t in coord.terms if _steady(t, mode.stride * mode.size)))
        if not whole.symbols <= env.keys() or whole.functions:
            raise Unsure("J5", f"the coordinate {coord} of {ref.name}", missing="coordinates that are numbers")
        need = np.asarray(whole.evaluate(env)) // mode.stride % mode.size
        if (need != digit.reshape(threads, 1, 1)).any():
            raise Refused("J5", f"a lane needs an element of {ref.name} that another lane holds", {})


def _steady(term: Any, period: int) -> bool:
    """Whether a term of a coordinate is a multiple of the period, whatever its variables are."""
    monomial, factor = term
    symbols = Expr(((monomial, 1),)).symbols
    return bool(monomial) and factor % period == 0 and not any(s.startswith("$") for s in symbols)
