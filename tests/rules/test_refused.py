"""Wrong steps: the rule refuses each for the right reason; forged, the checker refuses it for the right reason too."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from treadle.base.errors import TreadleError
from treadle.rules import (
    Derivation,
    dematerialise,
    distribute,
    factor,
    fuse,
    fuse_scopes,
    move,
    permute,
    recompute,
    regroup,
    reindex,
    serialise,
    specialise,
    split,
    split_scopes,
)
from treadle.rules.refusals import (
    CoverageBroken,
    DependenceBroken,
    FormUnsupported,
    NameUnknown,
    NotFactored,
    OrderBroken,
    Overwritten,
    PrefixBroken,
    StillUsed,
)

from . import kernels

SWAPPED = [[{"name": "p", "dim": "N"}], [{"name": "q", "dim": "M"}]], {"i": "q", "j": "p"}, {"p": "j", "q": "i"}
FOLDED = [[{"name": "p", "dim": "M"}, {"name": "q", "dim": "N"}]], {"i": "p", "j": "q // 2"}, {"p": "i", "q": "j"}
SHIFTED = [[{"name": "p", "dim": "M"}, {"name": "q", "dim": "N"}]], {"i": "p + 1", "j": "q"}, {"p": "i - 1", "q": "j"}
WRONG_BACK = [[{"name": "f", "dim": "F", "extent": "M*N"}]], {"i": "f // N", "j": "f - N*(f // N)"}, {"f": "M*j + i"}
BACKWARDS = [[{"name": "p", "dim": "N"}]], {"n": "N - 1 - p"}, {"p": "N - 1 - n"}

WRONG = {
    "a bijection that breaks the prefix": (kernels.owned, reindex, ("R0", *SWAPPED), PrefixBroken),
    "a map that runs instances twice": (kernels.pure, reindex, ("R0", *FOLDED), CoverageBroken),
    "a map that leaves the range": (kernels.pure, reindex, ("R0", *SHIFTED), CoverageBroken),
    "an inverse that is none": (kernels.pure, reindex, ("R0", *WRONG_BACK), CoverageBroken),
    "a chain turned round": (kernels.recurrence, reindex, ("R0", *BACKWARDS), OrderBroken),
    "blocks have no new indices": (kernels.tiles, reindex, ("R0", *FOLDED), FormUnsupported),
    "a split into nothing": (kernels.contract, split, ("R0", "m", 0), CoverageBroken),
    "a split through fixed blocks": (kernels.largest, split, ("R1", "n", 6), CoverageBroken),
    "an outer instance that owns something": (kernels.owned, fuse, ("R0",), PrefixBroken),
    "leaves that keep their order": (kernels.ordered_sum, permute, ("R0", ["n"], ["n"]), OrderBroken),
    "what does not commute, permuted": (kernels.lines, permute, ("R1", ["n"], ["n"]), OrderBroken),
    "an argument left out": (kernels.pure, permute, ("R0", ["i"]), CoverageBroken),
    "a chain factored": (kernels.recurrence, factor, ("R0", "n", 4), NotFactored),
    "an exact fold factored": (kernels.left_sum, factor, ("R0", "n", 4), NotFactored),
    "chunks through fixed blocks": (kernels.largest, factor, ("R1", "n", 6), CoverageBroken),
    "leaves folded out of order": (kernels.sums, regroup, ("%1", ["N"]), OrderBroken),
    "neighbours fused": (kernels.neighbours, fuse_scopes, ("R0", "R1"), DependenceBroken),
    "a chain that reads what comes later": (kernels.late_reader, fuse_scopes, ("R0", "R1"), DependenceBroken),
    "scopes over unlike parts": (kernels.snapshots, fuse_scopes, ("R0", "R1"), FormUnsupported),
    "a snapshot of what changes": (kernels.snapshots, recompute, ("%y", "R2"), Overwritten),
    "a read of what another store may change": (kernels.crossed, dematerialise, ("%2",), Overwritten),
    "a tile of another scope": (kernels.tiles, dematerialise, ("%3",), Overwritten),
    "a load of what the region stores": (kernels.snapshots, distribute, ("%y",), Overwritten),
    "a load that is inside where the region runs": (kernels.last_one, distribute, ("%1",), FormUnsupported),
    "colliding stores in order, in two scopes": (kernels.in_turn, split_scopes, ("R0", 3), OrderBroken),
    "colliding stores in order, in one scope": (kernels.in_turn, fuse_scopes, ("R0", "R1"), DependenceBroken),
    "a neighbour computed again": (kernels.neighbours, recompute, ("%8",), FormUnsupported),
    "a value that crosses scopes": (kernels.siblings, split_scopes, ("R0", 1), StillUsed),
    "a chain cut in two scopes": (kernels.two_chains, split_scopes, ("R0", 1), OrderBroken),
    "a use before its value": (kernels.pure, move, ("0.0.2", 0), StillUsed),
    "a load past a store of its tensor": (kernels.crossed, move, ("0.0.4", 3), DependenceBroken),
    "a chain put in order": (kernels.recurrence, serialise, ("R0",), OrderBroken),
    "a condition on what is no extent": (kernels.pure, specialise, ("R0", ["i >= 2"]), FormUnsupported),
    "a region that is not there": (kernels.pure, split, ("R7", "i", 2), NameUnknown),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_steps(name: str, snapshot: SnapshotAssertion) -> None:
    kernel, rule, args, kind = WRONG[name]
    d = Derivation(kernels.program(kernel))
    with pytest.raises(TreadleError) as caught:
        d.then(rule, *args)
    assert type(caught.value) is kind
    assert str(caught.value).partition("\n  found:")[2].partition("\n  see")[0] == snapshot
