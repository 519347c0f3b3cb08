"""Debian's Chromium, headless: what a page looks like, as boxes and as a small grey picture."""

from __future__ import annotations

import html
import json
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np

CHROMIUM = next((p for n in ("chromium", "chromium-browser") if (p := shutil.which(n))), None)

# Overlaps are looked for among texts of one drawing: a box of a text is a little taller than its letters.
MEASURE = """
const measure = (doc, width) => {
  const found = {width: doc.documentElement.scrollWidth, overlaps: [], outside: [], sections: [], texts: 0, narrow: []};
  const shown = e => e.textContent.replace(e.querySelector('title')?.textContent ?? '', '');
  for (const svg of doc.querySelectorAll('svg')) {
    const frame = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')].filter(t => shown(t).trim())
      .map(t => ({t: shown(t), b: t.getBoundingClientRect()})).filter(o => o.b.width > 0);
    found.texts += boxes.length;
    for (const {t, b} of boxes)
      if (b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 3 || b.bottom > frame.bottom + 3)
        found.outside.push(svg.getAttribute('aria-label') + ': ' + t);
    boxes.sort((p, q) => p.b.top - q.b.top);
    for (let i = 0; i < boxes.length; i++)
      for (let j = i + 1; j < boxes.length && boxes[j].b.top < boxes[i].b.bottom - 3; j++) {
        const p = boxes[i].b, q = boxes[j].b;
        if (p.left < q.right - 1 && q.left < p.right - 1)
          found.overlaps.push(svg.getAttribute('aria-label') + ': ' + boxes[i].t + ' / ' + boxes[j].t);
      }
  }
  for (const s of doc.querySelectorAll('section, header, nav, footer')) {
    const b = s.getBoundingClientRect();
    found.sections.push([s.id || s.tagName, b.left, b.right, b.top, b.bottom]);
  }
  const prose = 'p, dd, li, td, h1, h2, h3, figcaption, output, summary, .head, .binds, .does';
  for (const e of doc.querySelectorAll(prose)) {
    if (e.closest('.scroll') || e.closest('nav')) continue;
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline')
      found.narrow.push(e.textContent.slice(0, 60));
  }
  const said = () => [...doc.querySelectorAll('figure output')].map(o => o.textContent);
  const before = said(), key = (e, k) => e.dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true}));
  for (const svg of doc.querySelectorAll('figure.spread svg')) {
    svg.focus();
    key(svg, 'ArrowRight');
  }
  for (const fig of doc.querySelectorAll('figure.run')) {
    const first = fig.querySelector('.e');
    first.focus();
    key(first, 'ArrowRight');
    key(doc.activeElement, 'ArrowDown');
  }
  found.said = said().filter((text, i) => text !== before[i]).length;
  found.figures = before.length;
  found.outlined = doc.querySelectorAll('.over .mine').length;
  const ruler = doc.createElement('canvas').getContext('2d');
  ruler.font = '15px system-ui';
  found.ruler = ruler.measureText('Regions as written, and what executes them.').width;
  return found;
};
"""


def run(arguments: list[str], folder: Path) -> str:
    """Standard output of a run of the browser that leaves nothing behind."""
    assert CHROMIUM is not None
    fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run([CHROMIUM, *fixed, profile, *arguments], capture_output=True, text=True, timeout=120)
    return done.stdout


def layouts(pages: dict[str, str], widths: tuple[int, ...], folder: Path) -> dict[str, dict[str, Any]]:
    """What `measure` finds for every page at every width (`NAME@WIDTH`), in one run of the browser."""
    frames = "".join(
        f'<iframe id="{name}@{width}" width="{width}" height="900" srcdoc="{html.escape(text)}"></iframe>'
        for name, text in pages.items()
        for width in widths
    )
    script = (
        MEASURE + "addEventListener('load', () => { const all = {};"
        "for (const f of document.querySelectorAll('iframe')) all[f.id] = measure(f.contentDocument, f.width);"
        "document.body.innerHTML = '<pre id=layout></pre>';"
        "document.getElementById('layout').textContent = JSON.stringify(all) + '\\nend'; });"
    )
    wrapper = folder / "layout.html"
    wrapper.write_text(f"<!doctype html><meta charset=utf-8><body>{frames}<script>{script}</script>", "utf-8")
    dumped = run(["--virtual-time-budget=30000", "--dump-dom", f"file://{wrapper}"], folder)
    match = re.search(r'<pre id="layout">(.*?)\nend</pre>', dumped, re.S)
    assert match is not None, dumped[:500]
    return json.loads(html.unescape(match[1]))


def picture(text: str, width: int, height: int, dark: bool, folder: Path) -> np.ndarray:
    """A screenshot in grey, 16 pixels of the page a cell."""
    page, wrapper, image = folder / "page.html", folder / "frame.html", folder / "page.png"
    page.write_text(text, "utf-8")
    frame = f'<iframe src="page.html" width="{width}" height="{height}" style="border:0"></iframe>'
    wrapper.write_text(f'<!doctype html><body style="margin:0">{frame}', "utf-8")
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
    size = [f"--window-size={max(width, 640)},{height}", "--force-device-scale-factor=0.5"]
    run([*scheme, *size, f"--screenshot={image}", f"file://{wrapper}"], folder)
    grey = read_png(image.read_bytes()).mean(axis=2)[: height // 2, : width // 2]
    rows, columns = grey.shape[0] // 8, grey.shape[1] // 8
    return grey[: rows * 8, : columns * 8].reshape(rows, 8, columns, 8).mean(axis=(1, 3))


def read_png(data: bytes) -> np.ndarray:
    """The pixels of a PNG of 8 bits a channel, not interlaced: height x width x channels."""
    at, body, width, height, channels = 8, b"", 0, 0, 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        chunk = data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunk)
            assert depth == 8 and not interlaced
            channels = {0: 1, 2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            body += chunk
        at += 12 + size
    raw = np.frombuffer(zlib.decompress(body), np.uint8).reshape(height, 1 + width * channels)
    rows = np.zeros((height, width, channels), np.int32)
    above = np.zeros((width, channels), np.int32)
    for y in range(height):
        line = raw[y, 1:].astype(np.int32).reshape(width, channels)
        above = rows[y] = _unfilter(int(raw[y, 0]), line, above)
    return rows[:, :, :3].astype(np.uint8)


def _unfilter(kind: int, line: np.ndarray, above: np.ndarray) -> np.ndarray:
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, axis=0) & 255
    if kind == 2:
        return (line + above) & 255
    out = np.zeros_like(line)
    flat, up = line.tolist(), above.tolist()
    left, corner = [0] * line.shape[1], [0] * line.shape[1]
    for x, pixel in enumerate(flat):
        top = up[x]
        if kind == 3:
            left = [(p + (a + b) // 2) & 255 for p, a, b in zip(pixel, left, top)]
        else:
            left = [(p + _paeth(a, b, c)) & 255 for p, a, b, c in zip(pixel, left, top, corner)]
        corner = top
        out[x] = left
    return out


def _paeth(a: int, b: int, c: int) -> int:
    p = a + b - c
    pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
    return a if pa <= pb and pa <= pc else b if pb <= pc else c


def write_png(grey: np.ndarray) -> bytes:
    """A grey PNG."""
    height, width = grey.shape
    body = b"".join(b"\0" + row.tobytes() for row in grey.round().astype(np.uint8))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b"")
