"""Relocatable object files as LLVM writes them: which kind they are, which symbols they define and which they lack.

*Source*: System V ABI, object files (ELF); Apple, `mach-o/loader.h` and `mach-o/nlist.h`; Microsoft, PE Format.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

KINDS: dict[tuple[str, str], tuple[str, str]] = {
    ("Linux", "x86_64"): ("ELF", "x86-64"),
    ("Linux", "aarch64"): ("ELF", "aarch64"),
    ("Darwin", "x86_64"): ("Mach-O", "x86-64"),
    ("Darwin", "arm64"): ("Mach-O", "aarch64"),
    ("Windows", "AMD64"): ("COFF", "x86-64"),
}
"""What Python's `platform` calls a system and a processor -> format and processor of its objects."""

_ELF = struct.Struct("<4sBB10xHH")
_ELF_MACHINES = {62: "x86-64", 183: "aarch64"}
_MACHO = struct.Struct("<IIIIII")
_MACHO_MACHINES = {0x01000007: "x86-64", 0x0100000C: "aarch64"}
_COFF = struct.Struct("<HHIIIHH")
_COFF_MACHINES = {0x8664: "x86-64", 0xAA64: "aarch64"}


@dataclass(frozen=True)
class Symbols:
    """Names of global symbols, as C spells them (without the underscore of Mach-O)."""

    defined: frozenset[str]
    undefined: frozenset[str]


def kind_of(code: bytes) -> tuple[str, str] | None:
    """Format and processor of a 64-bit relocatable object; None for anything else."""
    if len(code) < 64:
        return None
    magic, width, order, kind, machine = _ELF.unpack_from(code)
    if (magic, width, order, kind) == (b"\x7fELF", 2, 1, 1):
        return ("ELF", _ELF_MACHINES[machine]) if machine in _ELF_MACHINES else None
    mark, processor, _, kind, _, _ = _MACHO.unpack_from(code)
    if (mark, kind) == (0xFEEDFACF, 1):
        return ("Mach-O", _MACHO_MACHINES[processor]) if processor in _MACHO_MACHINES else None
    machine, sections, _, table, count, optional, _ = _COFF.unpack_from(code)
    fits = sections and count and not optional and 20 <= table <= len(code) - 18 * count
    return ("COFF", _COFF_MACHINES[machine]) if fits and machine in _COFF_MACHINES else None


def symbols(code: bytes) -> Symbols:
    """Global symbols of an object. *Requires*: `kind_of(code)` knows it."""
    kind = kind_of(code)
    assert kind is not None
    rows = {"ELF": _elf, "Mach-O": _macho, "COFF": _coff}[kind[0]](code)
    defined = frozenset(name for name, there in rows if there)
    return Symbols(defined, frozenset(name for name, there in rows if not there))


def _name(code: bytes, at: int) -> str:
    return code[at : code.index(0, at)].decode()


def _elf(code: bytes) -> list[tuple[str, bool]]:
    """Section 2 of a symbol table's `link` holds its names; binding 0 is local."""
    (start,) = struct.unpack_from("<Q", code, 0x28)
    size, count = struct.unpack_from("<HH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, start + i * size) for i in range(count)]
    rows: list[tuple[str, bool]] = []
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = sections[link][4]
        for at in range(offset, offset + length, entry):
            name, info, _, section = struct.unpack_from("<IBBH", code, at)
            if info >> 4 and name:
                rows.append((_name(code, names + name), section != 0))
    return rows


def _macho(code: bytes) -> list[tuple[str, bool]]:
    """The command LC_SYMTAB says where the table is; bit 0 of a type is N_EXT, bits 1 to 3 are 0 for undefined."""
    count, at = struct.unpack_from("<I", code, 16)[0], 32
    rows: list[tuple[str, bool]] = []
    for _ in range(count):
        command, size = struct.unpack_from("<II", code, at)
        if command == 2:  # LC_SYMTAB
            table, number, names, _ = struct.unpack_from("<IIII", code, at + 8)
            for i in range(number):
                name, kind = struct.unpack_from("<IB", code, table + 16 * i)
                if kind & 1:
                    rows.append((_name(code, names + name).removeprefix("_"), bool(kind & 0xE)))
        at += size
    return rows


def _coff(code: bytes) -> list[tuple[str, bool]]:
    """Names of up to 8 bytes stand in the entry, longer ones behind the table; storage class 2 is external."""
    _, _, _, table, count, _, _ = _COFF.unpack_from(code)
    names, at = table + 18 * count, 0
    rows: list[tuple[str, bool]] = []
    while at < count:
        entry = table + 18 * at
        _, section, _, storage, more = struct.unpack_from("<IhHBB", code, entry + 8)
        if storage == 2:
            short, far = struct.unpack_from("<II", code, entry)
            name = code[entry : entry + 8].rstrip(b"\0").decode() if short else _name(code, names + far)
            rows.append((name, section != 0))
        at += 1 + more
    return rows
