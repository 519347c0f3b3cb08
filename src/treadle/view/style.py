"""The looks of a page: colours for light and dark, all inside the page; nothing is fetched."""

from __future__ import annotations

HUES = 32
"""Classes `h0` ... `h31`: lanes, banks."""

_PALETTE = {
    # name: light, dark
    "paper": ("#fbfaf7", "#14161a"),
    "card": ("#ffffff", "#1c1f25"),
    "ink": ("#1c2127", "#e6e4df"),
    "soft": ("#5a636e", "#a0a8b2"),
    "rule": ("#dcd8cf", "#343a43"),
    "wash": ("#f2efe8", "#242932"),
    "link": ("#0b5cad", "#7cb7f5"),
    "good": ("#1d7a46", "#63c990"),
    "bad": ("#b3261e", "#ff8a80"),
    "doubt": ("#8a5a00", "#f0be5a"),
    "work": ("#8fb4de", "#2f5f96"),
    "copy": ("#a9d4b1", "#2d6a45"),
    "used": ("#d9ebdc", "#24402f"),
    "contract": ("#e9b48a", "#8a4f22"),
    "wait": ("#e4e0d8", "#33383f"),
    "sync": ("#7b6aa8", "#b3a2e0"),
    "fork": ("#7b6aa8", "#b3a2e0"),
    "mark": ("#ffe9a8", "#5a4a12"),
}


def style() -> str:
    """The style sheet."""
    light = ";".join(f"--{n}:{a}" for n, (a, _) in _PALETTE.items())
    dark = ";".join(f"--{n}:{b}" for n, (_, b) in _PALETTE.items())
    # Neighbouring numbers get hues that are far apart: steps of the golden angle.
    hues = "".join(f".h{i}{{fill:hsl({i * 137.5 % 360:.0f} var(--s) var(--l))}}" for i in range(HUES))
    return (
        f":root{{color-scheme:light dark;{light};--s:62%;--l:80%}}"
        f"@media (prefers-color-scheme:dark){{:root{{{dark};--s:38%;--l:32%}}}}" + hues + _SHEET
    )


_SHEET = """
*{box-sizing:border-box}
html{scroll-padding-top:3.4rem;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
code,pre,.mono,svg text{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
a{color:var(--link)}
a:focus-visible,[tabindex]:focus-visible,summary:focus-visible{outline:2px solid var(--link);
  outline-offset:2px}
.skip{position:absolute;left:-99rem}
.skip:focus{left:.5rem;top:.5rem;z-index:9;background:var(--card);padding:.4rem .8rem}
header,main,footer{max-width:1240px;margin:0 auto;padding:0 1rem}
header{padding-top:1.4rem}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 .3rem}
h2{font-size:1.2rem;margin:0 0 .2rem}
h3{font-size:1rem;margin:1.4rem 0 .3rem}
p{margin:.3rem 0 .7rem;max-width:76ch}
.note,figcaption{color:var(--soft);font-size:.9rem}
nav{position:sticky;top:0;z-index:5;background:var(--paper);border-bottom:1px solid var(--rule)}
nav ul{max-width:1240px;margin:0 auto;padding:.45rem 1rem;display:flex;gap:.2rem 1rem;list-style:none;
  overflow-x:auto;white-space:nowrap}
section{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:1rem 1.1rem;
  margin:1rem 0}
figure{margin:.6rem 0 1rem}
.scroll{overflow:auto;max-width:100%;border:1px solid var(--rule);border-radius:6px;background:var(--card)}
.scroll svg{display:block}
table{border-collapse:collapse;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--rule)}
.scroll th,.scroll td{padding:.3rem .7rem;white-space:nowrap}
.scroll td div{white-space:normal;min-width:18rem;max-width:60ch}
th{font-weight:600;color:var(--soft)}
td.n{text-align:right;font-variant-numeric:tabular-nums}
dl.facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem .9rem;margin:.4rem 0}
dl.facts dt{color:var(--soft)}
dl.facts dd{margin:0;overflow-wrap:anywhere}
.badge{display:inline-block;padding:.05rem .55rem;border-radius:1rem;font-size:.85rem;font-weight:600;
  border:1.5px solid}
.verified,.fine{color:var(--good)}
.rejected,.clash{color:var(--bad)}
.unknown{color:var(--doubt)}
.code{margin:0;font-size:12.5px;line-height:1.55;max-height:36rem;counter-reset:none}
.code ol{list-style:none;margin:0;padding:.4rem 0;min-width:max-content}
.code li{display:flex;padding:0 .8rem 0 0;white-space:pre}
.code li>.no{flex:none;width:4.2em;text-align:right;padding-right:1em;color:var(--soft);text-decoration:none}
.code li>.from{flex:none;width:5.2em;color:var(--soft)}
.code li:target,.code li.lit{background:var(--mark)}
.code .claim{color:var(--soft)}
.nest{border:1px solid var(--rule);border-left:4px solid var(--soft);border-radius:6px;padding:.4rem .6rem;
  margin:.35rem 0;background:var(--card)}
.nest.parallel,.nest.tasks{border-left-color:var(--copy)}
.nest.reduce,.nest.loop{border-left-color:var(--contract)}
.nest.serial,.nest.pipeline,.nest.if{border-left-color:var(--sync)}
.nest.role{border-left-color:var(--work);background:var(--wash)}
.nest .head{font-size:.86rem;overflow-wrap:anywhere}
.nest .binds{font-size:.82rem;color:var(--soft);overflow-wrap:anywhere}
.nest .does{font-size:.82rem;margin:.25rem 0;padding-left:.5rem;overflow-wrap:anywhere}
.two{display:grid;grid-template-columns:minmax(0,2fr) minmax(0,3fr);gap:1.2rem}
@media (max-width:760px){.two{grid-template-columns:minmax(0,1fr)}section{padding:.8rem .7rem}
  h1{font-size:1.3rem}}
svg text{font-size:11px;fill:var(--ink)}
svg text.tiny{font-size:8.5px}
svg text.soft{fill:var(--soft)}
svg text.big{font-size:12px;font-weight:600}
.grid{stroke:var(--rule);stroke-width:1;fill:none}
.axis{stroke:var(--soft);stroke-width:1;fill:none}
.limit{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:5 3;fill:none}
.area{fill:var(--work);opacity:.75}
.work{fill:var(--work)}
.copy{fill:var(--copy)}
.used{fill:var(--used)}
.contract{fill:var(--contract)}
.wait{fill:var(--wait)}
.sync{fill:var(--sync)}
.fork{fill:var(--fork)}
.box{fill:var(--wash);stroke:var(--rule)}
.pill{fill:var(--card);stroke:var(--sync);stroke-width:1.5}
.edge{fill:none;stroke:var(--soft);stroke-width:1.3}
.edge.tell{stroke:var(--good)}
.edge.hear{stroke:var(--sync)}
.tip{fill:var(--soft)}
.e{cursor:pointer}
.e.cause rect{stroke:var(--bad);stroke-width:2}
.e.now rect{stroke:var(--ink);stroke-width:2}
.e:focus{outline:none}
.above{pointer-events:none}
.mine{fill:none;stroke:var(--ink);stroke-width:1.6}
.here{fill:none;stroke:var(--bad);stroke-width:2}
.lanes{display:flex;border:1px solid var(--rule);border-radius:6px;background:var(--card)}
.lanes .names{flex:none;border-right:1px solid var(--rule);padding:0;font-size:11.5px}
.lanes .names div{height:24px;line-height:24px;padding:0 .5rem;white-space:nowrap}
.lanes .scroll{border:0;border-radius:0;flex:1;min-width:0}
output{display:block;min-height:3em;font-size:.88rem;padding:.3rem 0;overflow-wrap:anywhere}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.85rem;margin:.3rem 0;padding:0;list-style:none}
.key svg{vertical-align:-2px;margin-right:.35rem}
ul.short{columns:17rem;margin:.3rem 0}
details{margin:.5rem 0}
summary{cursor:pointer}
footer{color:var(--soft);font-size:.85rem;padding-bottom:2rem}
@media print{nav{position:static}.code,.scroll{max-height:none;
  overflow:visible}section{break-inside:avoid-page}}
"""
