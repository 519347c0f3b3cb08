"""Coefficients of the cost model that were measured on this machine: where they lie, whose they are.

A file a machine under `calibration` in the cache's folder, as JSON: what the machine is, and seconds a unit by term for
each target. It is written whole or not at all, and read for the machine that it names only. `TREADLE_CACHE=off` keeps
none.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treadle.runtime.cache import default_root
from treadle.runtime.driver import devices
from treadle.runtime.host import available_cores, host_features

FORMAT = 1
_TOLD = ("model name", "cpu family", "model", "stepping")


@functools.cache
def machine_of(kind: str) -> str:
    """What this machine is, for a kind of target (`cpu`, `cuda`), in one line; empty without such a device."""
    if kind == "cuda":
        found = devices()
        return f"{found[0].name}, {found[0].arch}, {found[0].multiprocessors} multiprocessors" if found else ""
    told = _processor()
    name = " ".join(told.get(key, "") for key in _TOLD).strip() or platform.processor() or platform.machine()
    flags = hashlib.sha256(" ".join(sorted(host_features())).encode()).hexdigest()[:8]
    return f"{name}, {available_cores()} cores, flags {flags}"


def _processor() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def place_of_coefficients(kind: str) -> Path | None:
    """The file for this machine; None where nothing is kept."""
    root, machine = default_root(), machine_of(kind)
    if root is None or not machine:
        return None
    return root / "calibration" / f"{kind}-{hashlib.sha256(machine.encode()).hexdigest()[:16]}.json"


def kept(kind: str) -> dict[str, Any]:
    """What is kept of this machine: `machine`, `targets` (seconds a unit by target and term), and how they were found;
    empty without a whole file of this version for this machine."""
    path = place_of_coefficients(kind)
    if path is None:
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        good = data["format"] == FORMAT and data["machine"] == machine_of(kind) and isinstance(data["targets"], dict)
        seconds = [s for terms in data["targets"].values() for s in terms.values()]
        good = good and all(isinstance(s, int | float) and 0.0 <= s < 1.0 for s in seconds)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return data if good else {}


def keep_coefficients(target: str, seconds: Mapping[str, float], told: Mapping[str, Any]) -> Path | None:
    """Keeps the coefficients of a target beside those of others; returns the file, None where nothing is kept."""
    kind = target.partition(":")[0]
    path = place_of_coefficients(kind)
    if path is None:
        return None
    before = kept(kind)
    targets = {**before.get("targets", {}), target: dict(sorted(seconds.items()))}
    found = {**before.get("found", {}), target: dict(told)}
    data = {"format": FORMAT, "machine": machine_of(kind), "targets": targets, "found": found}
    return path if _written(path, json.dumps(data, indent=1) + "\n") else None


def _written(path: Path, text: str) -> bool:
    """Writes a file whole or not at all; False where the folder cannot be written or the disk is full."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(aside, path)
    except OSError:
        return False
    finally:
        Path(aside).unlink(missing_ok=True)
    return True


def drop_coefficients(kind: str) -> bool:
    """Forgets what is kept of this machine; says whether there was anything."""
    path = place_of_coefficients(kind)
    if path is None or not path.exists():
        return False
    path.unlink()
    return True


def measured_for(target: str) -> Mapping[str, float]:
    """Seconds a unit by term that were measured on this machine for a target; empty when there are none."""
    found: Mapping[str, float] = kept(target.partition(":")[0]).get("targets", {}).get(target, {})
    return found


def calibration_digest(target: str) -> str:
    """Changes when coefficients of this machine do: plans chosen under others are not those of today."""
    found = measured_for(target)
    return hashlib.sha256(json.dumps(sorted(found.items())).encode()).hexdigest()[:16] if found else ""
