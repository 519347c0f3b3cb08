"""Programs written out in regions and plain operations give what the programs as captured give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.lang import test_page as page
from tests.lang.kinds import convolutions, grids, recurrences, sparse
from tests.lang.kinds.ways import ints, reals

from treadle.evaluate import interpreter
from treadle.ir.core import Program
from treadle.ir.expand import FORMS, expand
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.ir.verifier import verify

EVALUATE = interpreter.evaluate
OFFSETS = np.array([0, 2, 2, 9], np.int32)

KERNELS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    name: (kernel, args, staged) for name, (kernel, args, staged, _) in page.CASES.items()
}
KERNELS |= {
    "max_pool": (convolutions.max_pool, (ints(2, 6, 7),), {"size": 3, "stride": 2, "pad": 1}),
    "segmented_sum": (recurrences.segmented_sum, (ints(3, 8), ints(3, 8, low=0, high=2, dtype=bool)), {}),
    "recurrence": (recurrences.linear_recurrence, (ints(2, 5, 3), ints(2, 5, 3)), {}),
    "reduced": (recurrences.linear_recurrence_reduced, (ints(2, 6), ints(2, 6)), {}),
    "products": (recurrences.matrix_product, (ints(2, 4, 3, 3),), {}),
    "prefixes": (recurrences.matrix_prefixes, (ints(2, 4, 3, 3),), {}),
    "running_argmax": (recurrences.running_argmax, (ints(2, 9),), {}),
    "segments": (sparse.segment_sums, (ints(10, 3), OFFSETS), {}),
    "lu": (grids.lu_blocked, (reals(7, 7) + 7 * np.eye(7, dtype=np.float32),), {}),
    "edit_distance": (grids.edit_distance, tuple(ints(n, low=0, high=3, dtype=np.int32) for n in (5, 4)), {}),
}


def evaluate_expanded(program: Program, arrays: Mapping[str, NDArray[Any]], *args: Any, **options: Any) -> None:
    made = expand(program)
    verify(made)
    assert not any(isinstance(op, FORMS) for op in made.body.walk())
    text = print_program(made)
    assert print_program(parse_program(text)) == text
    # The judge expands what it reads from a file.
    assert print_program(expand(parse_program(print_program(program)))) == text
    hidden = {h.tensor.name: np.zeros(len(h.messages), np.int32) for h in made.hidden}
    EVALUATE(made, {**arrays, **hidden}, *args, **options)
    assert not any(flags.any() for flags in hidden.values())


@pytest.mark.parametrize("name", KERNELS)
def test_expanded_programs_mean_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, args, staged = KERNELS[name]
    wanted = kernel.reference(*args, **staged)
    monkeypatch.setattr(interpreter, "evaluate", evaluate_expanded)
    found = kernel.reference(*args, **staged)
    several = isinstance(wanted, tuple)
    for mine, other in zip(found if several else (found,), wanted if several else (wanted,), strict=True):
        np.testing.assert_array_equal(mine, other)
