"""Instructions of processors that contract groups of short formats, by the features that have them: what families offer
and what is emitted comes from one table."""

from __future__ import annotations

from collections.abc import Container

FEATURES: dict[str, tuple[str, ...]] = {"dpbf16": ("avx512_bf16",), "dpbssd": ("avx512_vnni", "asimddp")}
"""Atoms that contract groups: the features of which one has to be there, each with an instruction of its own."""

CORRECTED = frozenset(("avx512_vnni",))
"""Features whose instruction takes a factor without a sign: what that adds to a sum is subtracted."""


def feature_of(atom: str, features: Container[str]) -> str | None:
    """The feature whose instruction is taken for an atom that contracts groups; None where there is none."""
    return next((f for f in FEATURES[atom] if f in features), None)
