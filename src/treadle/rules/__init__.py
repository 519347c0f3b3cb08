"""The rewrites, each a function from a program and arguments to a program and the step that records it.

`nests` (split, fuse, permute, reindex, serialise), `folds` (factor, regroup, products), `scans` (gather), `copies`
(dematerialise, distribute, recompute), `tiles` (materialise), `layouts` (relayout), `scopes` (fuse_scopes,
split_scopes, move, specialise) and `enclosing` (enclose) are the rules on programs, `plans` those on plans.
A `Derivation` strings steps together, a `Replanning` those on plans, a `History` is both; `schedules` are ordinary
functions made of them.
The checker validates what they give and knows none of them. Start at `derivation`, then `draft`.
"""

from treadle.rules.copies import dematerialise, distribute, recompute
from treadle.rules.derivation import RULES, Derivation, apply
from treadle.rules.enclosing import enclose
from treadle.rules.folds import apart, factor, products, regroup
from treadle.rules.history import History
from treadle.rules.layouts import relayout
from treadle.rules.nests import fuse, permute, reindex, serialise, split
from treadle.rules.plans import narrow, replan
from treadle.rules.replanning import Replanning
from treadle.rules.scans import gather
from treadle.rules.schedules import dematerialise_all, fuse_siblings, inline, split_k, stage, tile
from treadle.rules.scopes import fuse_scopes, move, specialise, split_scopes
from treadle.rules.tiles import materialise

__all__ = [
    "RULES",
    "Derivation",
    "History",
    "Replanning",
    "apply",
    "dematerialise",
    "dematerialise_all",
    "distribute",
    "enclose",
    "factor",
    "fuse",
    "fuse_scopes",
    "fuse_siblings",
    "gather",
    "inline",
    "materialise",
    "move",
    "narrow",
    "permute",
    "apart",
    "products",
    "recompute",
    "regroup",
    "reindex",
    "relayout",
    "replan",
    "serialise",
    "specialise",
    "split",
    "split_k",
    "split_scopes",
    "stage",
    "tile",
]
