"""Artifacts on disk, found by the content they were made from.

An entry is a directory `<root>/v1/<2 digits>/<key>/` with its files and a `manifest.json` that holds each file's size
and digest. Entries are written aside and renamed into place, so a reader sees a whole entry or none; of several
processes that write one key the first wins and the others drop theirs. An entry that does not match its manifest is
dropped and made again. The least recently used entries go when the whole exceeds its bound.

A cache that cannot be written, or `TREADLE_CACHE=off`, is no error: everything is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LAYOUT = "v1"
DEFAULT_BOUND = 2 << 30
_MANIFEST = "manifest.json"
_SHARE = 20
"""Of the bound, this part may be written before it is measured again."""
_STALE_SECONDS = 3600.0
_TOUCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One cached artifact: its files' bytes and whatever its maker wrote beside them."""

    key: str
    files: Mapping[str, bytes]
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What is on disk, and what this process did. Units: `bytes`, `bound` in bytes."""

    root: str
    entries: int
    bytes: int
    bound: int
    hits: int
    misses: int
    dropped: int


def content_key(*parts: str | bytes | int) -> str:
    """A key for what is made from `parts`: hexadecimal, 40 digits. Each part's length and type take part."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(f"{type(part).__name__}:{len(data)};".encode() + data)
    return digest.hexdigest()[:40]


def default_root() -> Path | None:
    """`TREADLE_CACHE`, else `treadle` in the user's cache directory, from the root; None when `TREADLE_CACHE` is `off`,
    and where there is no such directory: a user without a home, or a name that is relative to a directory that is gone.
    """
    named = os.environ.get("TREADLE_CACHE")
    if named is not None and named.strip().lower() in ("", "off", "0", "none"):
        return None
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        if named is not None:
            return Path(named).expanduser().absolute()
        return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser().absolute()) / "treadle"
    except (RuntimeError, OSError):
        return None


class Cache:
    """The cache under `root`; with `root=None` nothing is kept. Units: `bound` in bytes."""

    def __init__(self, root: Path | str | None, *, bound: int = DEFAULT_BOUND) -> None:
        self.root = None if root is None else Path(root)
        self.bound = bound
        self._hits = self._misses = self._dropped = 0
        self._bytes: int | None = None
        self._since = 0

    def get(self, key: str) -> Entry | None:
        """The entry of `key`; None when there is none. A damaged one is dropped."""
        entry = self._read(key)
        if entry is None:
            self._misses += 1
        else:
            self._hits += 1
        return entry

    def put(self, key: str, files: Mapping[str, bytes], meta: Mapping[str, Any] | None = None) -> Entry:
        """Keep `files` and the JSON-able `meta` under `key`; returns the entry, kept or not."""
        entry = Entry(key, dict(files), dict(meta or {}))
        if self.root is not None:
            try:
                self._write(entry)
                self._bound_size(sum(len(data) for data in files.values()))
            except OSError:
                # Full disk, no permission, a directory removed under us: the artifact is in hand anyway.
                pass
        return entry

    def get_or_build(self, key: str, build: Callable[[], tuple[Mapping[str, bytes], Mapping[str, Any]]]) -> Entry:
        """The entry of `key`, made by `build() -> (files, meta)` and kept if there is none."""
        entry = self.get(key)
        return entry if entry is not None else self.put(key, *build())

    def drop(self, key: str) -> None:
        """Forget `key`."""
        if self.root is not None:
            self._remove(self._place(key))

    def clear(self) -> int:
        """Forget everything; returns the number of entries that went."""
        if self.root is None:
            return 0
        places = list(self._places())
        for place in places:
            self._remove(place)
        self._sweep_aside(older_than=0.0)
        self._bytes = 0
        return len(places)

    def stats(self) -> CacheStats:
        """Counts and sizes, read from the disk now."""
        sizes = [_size(place) for place in self._places()]
        root = "off" if self.root is None else str(self.root)
        return CacheStats(root, len(sizes), sum(sizes), self.bound, self._hits, self._misses, self._dropped)

    def _place(self, key: str) -> Path:
        assert self.root is not None
        if not key.isalnum() or len(key) < 8:
            raise ValueError(f"a cache key is letters and digits, at least 8: {key!r}")
        return self.root / LAYOUT / key[:2] / key

    def _places(self) -> Iterator[Path]:
        if self.root is None:
            return
        try:
            groups = [group for group in (self.root / LAYOUT).iterdir() if len(group.name) == 2]
        except OSError:
            return
        for group in groups:
            try:
                yield from list(group.iterdir())
            except OSError:
                continue

    def _read(self, key: str) -> Entry | None:
        if self.root is None:
            return None
        place = self._place(key)
        try:
            text = (place / _MANIFEST).read_bytes()
        except FileNotFoundError:
            if place.exists():
                self._damaged(place)
            return None
        except OSError:
            return None
        try:
            manifest = json.loads(text)
            files = {str(name): (place / str(name)).read_bytes() for name in manifest["files"]}
            sound = manifest["key"] == key and all(
                manifest["files"][name] == _describe(data) for name, data in files.items()
            )
            meta: dict[str, Any] = dict(manifest["meta"])
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            sound, files, meta = False, dict[str, bytes](), dict[str, Any]()
        if not sound:
            self._damaged(place)
            return None
        self._touch(place)
        return Entry(key, files, meta)

    def _damaged(self, place: Path) -> None:
        self._dropped += 1
        self._remove(place)

    def _touch(self, place: Path) -> None:
        """The manifest's time is the time of last use, to the minute."""
        manifest = place / _MANIFEST
        try:
            if time.time() - manifest.stat().st_mtime > _TOUCH_SECONDS:
                os.utime(manifest)
        except OSError:
            pass

    def _write(self, entry: Entry) -> None:
        place = self._place(entry.key)
        aside = self._aside()
        try:
            for name, data in entry.files.items():
                if name == _MANIFEST or Path(name).name != name:
                    raise ValueError(f"not a file name for a cache entry: {name!r}")
                (aside / name).write_bytes(data)
            described = {name: _describe(data) for name, data in entry.files.items()}
            manifest = {"key": entry.key, "files": described, "meta": dict(entry.meta)}
            (aside / _MANIFEST).write_text(json.dumps(manifest, sort_keys=True, indent=1), encoding="utf-8")
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                os.rename(aside, place)
            except OSError:
                # Another process was first. If what it left is no good, the next read drops it.
                if not place.exists():
                    raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _aside(self) -> Path:
        assert self.root is not None
        holder = self.root / LAYOUT / "aside"
        holder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Path(tempfile.mkdtemp(prefix="w", dir=holder))

    def _remove(self, place: Path) -> None:
        """First out of sight, in one step, so that no reader sees half an entry; then file by file."""
        try:
            aside = self._aside()
            os.rename(place, aside / "gone")
            shutil.rmtree(aside, ignore_errors=True)
        except OSError:
            pass
        self._bytes = None

    def _sweep_aside(self, older_than: float) -> None:
        assert self.root is not None
        try:
            left = list((self.root / LAYOUT / "aside").iterdir())
        except OSError:
            return
        for place in left:
            try:
                if time.time() - place.stat().st_mtime >= older_than:
                    shutil.rmtree(place, ignore_errors=True)
            except OSError:
                continue

    def _bound_size(self, added: int) -> None:
        """Measure, then count along; when the bound is passed, measure again and drop the oldest to 9/10.

        Others may write meanwhile, of which the count knows nothing: after a `_SHARE` of the bound it is measured
        again, so that each of the processes is that much, and one entry, beyond the bound at most.
        """
        self._since += added
        if self._bytes is not None and self._since <= self.bound // _SHARE:
            self._bytes += added
        else:
            self._bytes, self._since = sum(_size(place) for place in self._places()), 0
        if self._bytes <= self.bound:
            return
        self._sweep_aside(_STALE_SECONDS)
        aged = sorted(((_last_use(place), _size(place), place) for place in self._places()), key=lambda row: row[0])
        total = sum(size for _, size, _ in aged)
        for _, size, place in aged[:-1]:
            if total <= self.bound * 9 // 10:
                break
            self._remove(place)
            total -= size
        self._bytes, self._since = total, 0


def _describe(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _size(place: Path) -> int:
    try:
        return sum(file.stat().st_size for file in place.iterdir())
    except OSError:
        return 0


def _last_use(place: Path) -> float:
    try:
        return (place / _MANIFEST).stat().st_mtime
    except OSError:
        return 0.0


_default: list[Cache] = []


def default_cache() -> Cache:
    """The process's cache: `default_root()` and `TREADLE_CACHE_BYTES`, both read at the first call."""
    if not _default:
        size = os.environ.get("TREADLE_CACHE_BYTES", "")
        _default.append(Cache(default_root(), bound=int(size) if size.isdigit() else DEFAULT_BOUND))
    return _default[0]
