"""The on-disk cache: whole entries or none, damage healed, losers of a race content, size bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from treadle.runtime.cache import Cache, content_key, default_root

KEY = content_key("one")


def place(cache: Cache, key: str) -> Path:
    return cache._place(key)


def test_what_was_put_is_got(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.get(KEY) is None
    cache.put(KEY, {"code.o": b"\x00\x01", "log.txt": b""}, {"target": "cpu", "n": 3})
    again = Cache(tmp_path).get(KEY)
    assert again is not None and again.files == {"code.o": b"\x00\x01", "log.txt": b""}
    assert again.meta == {"target": "cpu", "n": 3}
    stats = cache.stats()
    assert (stats.entries, stats.misses, stats.hits) == (1, 1, 0) and stats.bytes > 2


def test_build_runs_once(tmp_path: Path) -> None:
    made: list[int] = []

    def build() -> tuple[dict[str, bytes], dict[str, int]]:
        made.append(1)
        return {"a": b"x"}, {"m": 1}

    for _ in range(3):
        assert Cache(tmp_path).get_or_build(KEY, build).files == {"a": b"x"}
    assert made == [1]


def test_keys_tell_parts_apart() -> None:
    keys = {content_key(*parts) for parts in (("a", "b"), ("ab",), ("ab", ""), (b"ab",), ("a", "c"), (1,), ("1",))}
    assert len(keys) == 7 and all(len(key) == 40 for key in keys)
    assert content_key("a", b"b", 3) == content_key("a", b"b", 3)
    with pytest.raises(ValueError, match="cache key"):
        Cache("anywhere").get("../../outside")


def damage_byte(entry: Path) -> None:
    data = bytearray((entry / "code.o").read_bytes())
    data[0] ^= 1
    (entry / "code.o").write_bytes(bytes(data))


def damage_short(entry: Path) -> None:
    (entry / "code.o").write_bytes(b"")


def damage_missing(entry: Path) -> None:
    (entry / "code.o").unlink()


def damage_manifest(entry: Path) -> None:
    (entry / "manifest.json").write_text("{")


def damage_manifest_kind(entry: Path) -> None:
    (entry / "manifest.json").write_text("[]")


def damage_no_manifest(entry: Path) -> None:
    (entry / "manifest.json").unlink()


def damage_other_key(entry: Path) -> None:
    manifest = json.loads((entry / "manifest.json").read_text())
    (entry / "manifest.json").write_text(json.dumps({**manifest, "key": content_key("two")}))


DAMAGES = [value for name, value in sorted(globals().items()) if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_damage_is_dropped_and_healed(tmp_path: Path, damage: object) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, {"code.o": b"code"}, {})
    damage(place(cache, KEY))
    assert cache.get(KEY) is None
    assert cache.stats().dropped == 1 and not place(cache, KEY).exists()
    assert cache.get_or_build(KEY, lambda: ({"code.o": b"again"}, {})).files == {"code.o": b"again"}
    assert cache.get(KEY) is not None


def test_the_first_writer_wins(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, {"a": b"first"}, {})
    assert Cache(tmp_path).put(KEY, {"a": b"second"}, {}).files == {"a": b"second"}, "a loser uses its own"
    kept = cache.get(KEY)
    assert kept is not None and kept.files == {"a": b"first"}
    assert list((tmp_path / "v1" / "aside").iterdir()) == []


def test_several_processes(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from treadle.runtime.cache import Cache, content_key\n"
        "cache = Cache(sys.argv[1])\n"
        "for turn in range(60):\n"
        "    key = content_key('shared', turn % 7)\n"
        "    entry = cache.get_or_build(key, lambda: ({'a': bytes(1000)}, {}))\n"
        "    assert entry.files == {'a': bytes(1000)}\n"
        "    if turn % 5 == 0:\n"
        "        cache.drop(key)\n"
    )
    crowd = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in crowd] == [0, 0, 0]
    assert Cache(tmp_path).stats().entries <= 7


def test_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, bound=6000)
    keys = [content_key(number) for number in range(8)]
    for age, key in enumerate(keys[:5]):
        cache.put(key, {"a": bytes(1000)}, {})
        old = time.time() - 1000 + age
        os.utime(place(cache, key) / "manifest.json", (old, old))
    assert cache.get(keys[0]) is not None, "used just now"
    for key in keys[5:]:
        cache.put(key, {"a": bytes(1000)}, {})
    assert cache.stats().bytes <= 6000
    kept = [key in {p.name for p in cache._places()} for key in keys]
    assert kept[0] and not kept[1] and kept[7]


def test_clear(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for number in range(3):
        cache.put(content_key(number), {"a": b"x"}, {})
    assert cache.clear() == 3
    assert cache.stats().entries == 0 and cache.stats().bytes == 0


def test_no_place_to_keep_is_no_error(tmp_path: Path) -> None:
    for cache in (Cache(None), Cache(tmp_path / "file" / "below")):
        (tmp_path / "file").write_text("in the way")
        assert cache.put(KEY, {"a": b"x"}, {}).files == {"a": b"x"}
        assert cache.get(KEY) is None
        assert cache.stats().entries == 0 and cache.clear() == 0


def test_root_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    assert default_root() == tmp_path
    monkeypatch.setenv("TREADLE_CACHE", "off")
    assert default_root() is None
    monkeypatch.delenv("TREADLE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "treadle"


def test_a_relative_root_stays_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_CACHE", "kept")
    assert default_root() == tmp_path / "kept"
    monkeypatch.delenv("TREADLE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "a/relative/one")  # which its specification has ignored
    assert default_root() == tmp_path / "home" / ".cache" / "treadle"


def test_who_has_no_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for named in (None, "~/kept", "~no-such-user/kept"):
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does where there is no home
        if named is None:
            monkeypatch.delenv("TREADLE_CACHE")
        else:
            monkeypatch.setenv("TREADLE_CACHE", named)
        assert default_root() is None
    monkeypatch.undo()
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("TREADLE_CACHE", "kept")
    assert default_root() is None
