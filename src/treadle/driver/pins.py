"""What an author writes in `plan(where=...)`: constraints in the right form, by names that the program has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treadle.driver.errors import PinForm, PinName
from treadle.ir.core import Program, Region
from treadle.lang.objects import listed, plain_number
from treadle.plan.pins import AtomPin, Pin, PlacePin, TilePin, VersionsPin

FORMS = 'td.tile(m=128), td.place("acc", "register"), td.atom("acc", "fma"), td.versions("X", 2)'


def checked_pins(program: Program, where: Any) -> tuple[Pin, ...]:
    """The constraints of `where`, one or several. *Errors*: `plan/pin-form`, `plan/pin-name`."""
    given = () if where is None else tuple(listed(where))
    for pin in given:
        if not isinstance(pin, Pin):
            raise _form(program, f"{pin!r} in where=", FORMS)
        _check_form(program, pin)
    for pin in given:
        _check_name(program, pin)
    return given


def _check_form(program: Program, pin: Pin) -> None:
    match pin:
        case TilePin(sizes):
            for name, size in sizes.items():
                if not _is_count(size):
                    raise _form(program, f"td.tile({name}={size!r})", "block sizes that are integers of at least 1")
        case VersionsPin(tensor, count):
            if not _is_word(tensor) or not _is_count(count):
                raise _form(program, f"td.versions({tensor!r}, {count!r})", "a name and an integer of at least 1")
        case PlacePin(value, word) | AtomPin(value, word):
            if not _is_word(value) or not _is_word(word):
                raise _form(program, f"{value!r} and {word!r}", "a name, and the name of a memory or instruction")


def _is_word(x: Any) -> bool:
    return isinstance(x, str)


def _is_count(x: Any) -> bool:
    number = plain_number(x)
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _form(program: Program, found: str, expected: str) -> PinForm:
    return PinForm(
        doing=f"reading the constraints of a plan of {program.name}",
        found=found,
        expected=expected,
        hint=f"write where=[...] with constraints like {FORMS}",
        span=program.span,
    )


def _check_name(program: Program, pin: Pin) -> None:
    match pin:
        case TilePin(sizes):
            blocks = _blocks(program)
            for name in sizes:
                _known(program, pin, name, blocks, "a block, that is the loop name of a region, or REGION.NAME")
        case VersionsPin(name, _):
            _known(program, pin, name, _values(program), "a tensor or a named value")
        case PlacePin(name, _) | AtomPin(name, _):
            _known(program, pin, name, _values(program), "a named value")


def _known(program: Program, pin: Pin, name: str, names: Iterable[str], what: str) -> None:
    known = dict.fromkeys(names)
    if name not in known:
        raise PinName(
            doing=f"reading the constraint {pin} of a plan of {program.name}",
            found=f"{name}, a name that the kernel does not have",
            expected=f"{what}: {', '.join(known) or '(none)'}",
            hint="constraints go by the names of the source",
            span=program.span,
        )


def _blocks(program: Program) -> list[str]:
    """The loop names of regions, and the same behind the names of their regions."""
    regions = [op for op in program.body.walk() if isinstance(op, Region)]
    bare = [a.source or a.name for r in regions for a in r.args]
    return bare + [f"{r.name}.{a.source or a.name}" for r in regions if r.name for a in r.args]


def _values(program: Program) -> list[str]:
    """Tensors and the names that values were given."""
    found = [t.name for t in program.tensors]
    for op in program.body.walk():
        found += [v.hint for v in (*(op.carried if isinstance(op, Region) else ()), *op.results) if v.hint]
    return found
