"""What is kept of a variant: enough to run it again without planning, judging or compiling."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treadle.driver.calibration import calibration_digest
from treadle.ir.guard import Guard
from treadle.plan.plan import guard_in
from treadle.runtime.cache import Entry, content_key, default_cache

PACKAGE = Path(__file__).resolve().parents[1]
CODE, MACHINE, SOURCE = "code.bin", "machine.tdm", "source.txt"


@dataclass(frozen=True, repr=False)
class Record:
    """A judged, compiled plan.

    `machine` is the machine text that was judged, `source` the emitted text, `code` the object or cubin. `meta` has
    `target`, `plan` (one line), `family`, `verdict` (a dict), `guard` (lines), `seconds` by stage, `notes` (what was
    tried before), and what the target's loader needs (`entry`, `workspace`, ...).
    """

    machine: str
    source: str
    code: bytes
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __repr__(self) -> str:
        return f"<record of {self.plan}: {self.verdict['status']}>"

    @property
    def plan(self) -> str:
        """The plan in one line."""
        return str(self.meta["plan"])

    @property
    def verdict(self) -> Mapping[str, Any]:
        """The judge's verdict on `machine`."""
        return self.meta["verdict"]

    @property
    def guard(self) -> Guard:
        """The facts of a call under which the plan holds."""
        return guard_in(self.meta["guard"])

    @property
    def digest(self) -> str:
        """What makes two records the same code: target and machine text."""
        return content_key("variant", str(self.meta["target"]), self.machine)


@functools.cache
def fingerprint() -> str:
    """Changes when any file of the package changes: part of every key, so that a newer treadle plans anew."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        state = path.stat()
        digest.update(f"{path.relative_to(PACKAGE)}:{state.st_size}:{state.st_mtime_ns};".encode())
    return digest.hexdigest()[:16]


def record_key(program_text: str, target: str, call_class: str, pins: str = "") -> str:
    """The cache key of the variant for a program, a target, a class of calls and the user's pins."""
    made = f"{fingerprint()} {calibration_digest(target)}"
    return content_key("record", made, program_text, target, call_class, pins)


def fetch(key: str) -> Record | None:
    """The cached record, if it is whole and its machine text is the one that was judged."""
    entry = default_cache().get(key)
    if entry is None or not {CODE, MACHINE, SOURCE} <= entry.files.keys():
        return None
    record = _record(entry)
    return record if record.meta.get("digest") == record.digest else None


def _record(entry: Entry) -> Record:
    files = entry.files
    return Record(files[MACHINE].decode(), files[SOURCE].decode(), files[CODE], dict(entry.meta))


def keep(key: str, record: Record) -> None:
    """Caches a record."""
    files = {CODE: record.code, MACHINE: record.machine.encode(), SOURCE: record.source.encode()}
    default_cache().put(key, files, {**record.meta, "digest": record.digest})


def forget(key: str) -> None:
    """Drops a record from the cache."""
    default_cache().drop(key)


def replace_record(key: str, record: Record) -> None:
    """Caches a record in the place of another. Processes that replace it at once each succeed or are followed."""
    for _ in range(3):
        default_cache().drop(key)
        keep(key, record)
        found = fetch(key)
        if found is None or found.digest == record.digest:  # without a cache on disk there is nothing to replace
            return
