"""The page's own script: hovering and arrow keys. Without it the page shows everything but who holds an element."""

from __future__ import annotations

SCRIPT = """
'use strict';
// Source and machine text: a line shows its partners.
for (const li of document.querySelectorAll('.code li[data-of]')) {
  const partners = () => document.querySelectorAll('.code li[data-of="' + li.dataset.of + '"]');
  const light = on => { for (const other of partners()) other.classList.toggle('lit', on); };
  li.addEventListener('mouseenter', () => light(true));
  li.addEventListener('mouseleave', () => light(false));
}
const ARROWS = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]};

// Timelines: an event tells what it is and outlines what it waited for; arrows go from event to event.
for (const fig of document.querySelectorAll('figure.run')) {
  const out = fig.querySelector('output');
  const all = [...fig.querySelectorAll('.e')];
  const by = new Map(all.map(e => [e.dataset.n, e]));
  let now = null;
  const show = e => {
    for (const other of all) other.classList.remove('cause', 'now');
    now = e;
    e.classList.add('now');
    for (const n of e.dataset.after.split(' ')) by.get(n)?.classList.add('cause');
    out.textContent = e.querySelector('title').textContent;
  };
  const follow = e => { if (e && e.dataset.to) location.hash = e.dataset.to; };
  for (const e of all) {
    e.addEventListener('mouseenter', () => show(e));
    e.addEventListener('focus', () => show(e));
    e.addEventListener('click', () => follow(e));
  }
  const near = (lane, x) => (a, b) =>
    Math.abs(a.dataset.lane - lane) - Math.abs(b.dataset.lane - lane) ||
    Math.abs(a.dataset.x - x) - Math.abs(b.dataset.x - x);
  fig.addEventListener('keydown', key => {
    if (key.key === 'Enter') return follow(now);
    const step = ARROWS[key.key];
    if (!step || !all.length || !key.target.classList.contains('e')) return;
    key.preventDefault();
    const lane = +now.dataset.lane, x = +now.dataset.x, at = all.indexOf(now);
    const there = step[0]
      ? all.filter(e => (e.dataset.lane - lane) * step[0] > 0)
      : all.filter((e, i) => +e.dataset.lane === lane && (i - at) * step[1] > 0);
    const next = there.sort(near(lane, x))[0];
    if (!next) return;
    for (const other of all) other.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    next.scrollIntoView({block: 'nearest', inline: 'nearest'});
  });
}

// Distributions: the element under the pointer or the cursor, who has it, and what else that thread has.
for (const fig of document.querySelectorAll('figure.spread')) {
  const {rank, rows, columns, cell, left, top, modes} = JSON.parse(fig.dataset.dist);
  const svg = fig.querySelector('svg'), out = fig.querySelector('output'), over = svg.querySelector('.over');
  const places = [];
  for (let i = 0, total = modes.reduce((n, m) => n * m[1], 1); i < total; i++) {
    const at = [0, 0], who = {slot: 0, lane: 0, warp: 0, replica: 0}, radix = {slot: 1, lane: 1, warp: 1, replica: 1};
    let n = i;
    for (const [kind, size, axis, stride] of modes) {
      const digit = n % size;
      n = (n - digit) / size;
      who[kind] += digit * radix[kind];
      radix[kind] *= size;
      if (axis !== null) at[axis] += digit * stride;
    }
    places.push({r: at[0], c: at[1], ...who});
  }
  let r = 0, c = 0;
  const show = () => {
    const have = places.filter(p => p.r === r && p.c === c);
    if (!have.length) return;
    const mine = places.filter(p => p.warp === have[0].warp && p.lane === have[0].lane);
    const seen = new Map(mine.map(p => [p.r + ',' + p.c, p]));
    let path = '';
    for (const p of seen.values())
      if (p.r < rows && p.c < columns)
        path += 'M' + (left + p.c * cell) + ' ' + (top + p.r * cell) + 'h' + cell + 'v' + cell + 'h-' + cell + 'z';
    over.innerHTML = '<path class="mine" d="' + path + '"/><rect class="here" x="' + (left + c * cell) +
      '" y="' + (top + r * cell) + '" width="' + cell + '" height="' + cell + '"/>';
    const name = rank === 2 ? '[' + r + ', ' + c + ']' : '[' + c + ']';
    const who = [...new Set(have.map(p => 'warp ' + p.warp + ' lane ' + p.lane))];
    const more = who.length > 3 ? ' and ' + (who.length - 3) + ' more' : '';
    out.textContent = 'element ' + name + ': ' + who.slice(0, 3).join(', ') + more + ', slot ' + have[0].slot +
      '; that thread has ' + seen.size + ' elements (outlined)';
  };
  const move = (y, x) => {
    r = Math.max(0, Math.min(rows - 1, y));
    c = Math.max(0, Math.min(columns - 1, x));
    show();
  };
  svg.addEventListener('mousemove', e => {
    const box = svg.getBoundingClientRect();
    move(Math.floor((e.clientY - box.top - top) / cell), Math.floor((e.clientX - box.left - left) / cell));
  });
  svg.addEventListener('keydown', key => {
    const step = ARROWS[key.key];
    if (!step) return;
    key.preventDefault();
    move(r + step[0], c + step[1]);
  });
  svg.addEventListener('focus', show);
}
"""
