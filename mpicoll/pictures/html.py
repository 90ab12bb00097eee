"""A film as one HTML page that works offline: a step at a time, with its messages; printed, all steps."""

from __future__ import annotations

from html import escape

from mpicoll.pictures.drawing import STYLE, Drawing
from mpicoll.pictures.film import Film
from mpicoll.pictures.legend import draw_legend, legend
from mpicoll.pictures.notation import arrow_text, made_of_ranks
from mpicoll.pictures.svg import step_svgs

SHEET = (
    STYLE
    + """
:root{color-scheme:light}
body{font-family:sans-serif;margin:1.2em auto;max-width:76em;padding:0 1em;background:#fff;color:#1a1a1a}
h1{font-size:1.4em} h2{font-size:1.1em;margin:.2em 0}
nav{display:flex;gap:.6em;align-items:center;margin:.8em 0}
nav input{flex:1} nav output{min-width:9em;font-weight:bold}
button{font:inherit;padding:.2em .8em}
section{display:flex;gap:1.5em;align-items:flex-start;flex-wrap:wrap}
section svg{max-width:100%;height:auto;zoom:1.15}
.js section{display:none} .js section.now{display:flex}
ol,ul{margin:.3em 0;padding-left:1.2em;font-family:monospace}
pre{background:#f5f5f5;color:#1a1a1a;padding:.8em;white-space:pre-wrap}
kbd{border:1px solid #999;border-radius:3px;padding:0 .3em}
@media print{nav,.keys{display:none}.js section,section{display:flex;break-inside:avoid}section svg{zoom:.8}}
"""
)

SCRIPT = """
const steps = [...document.querySelectorAll("section")], slider = document.querySelector("nav input");
const play = document.querySelector("#play"), told = document.querySelector("nav output");
let now = 0, timer = null;
document.documentElement.classList.add("js");
function show(step) {
  now = Math.min(Math.max(step, 0), steps.length - 1);
  steps.forEach((section, k) => section.classList.toggle("now", k === now));
  slider.value = now;
  told.value = now ? `round ${now - 1} (last: ${steps.length - 2})` : "start";
  history.replaceState(null, "", now ? `#round=${now - 1}` : "#start");
}
function stop() { clearInterval(timer); timer = null; play.textContent = "Play"; }
function toggle() {
  if (timer) return stop();
  if (now === steps.length - 1) show(0);
  timer = setInterval(() => { show(now + 1); if (now === steps.length - 1) stop(); }, 1200);
  play.textContent = "Pause";
}
function asked() {
  const found = /^#round=(\\d+)$/.exec(location.hash);
  show(found ? Number(found[1]) + 1 : 0);
}
document.querySelector("#back").onclick = () => { stop(); show(now - 1); };
document.querySelector("#next").onclick = () => { stop(); show(now + 1); };
play.onclick = toggle;
slider.oninput = () => { stop(); show(Number(slider.value)); };
addEventListener("hashchange", asked);
addEventListener("keydown", event => {
  if (event.target === slider || event.ctrlKey || event.altKey || event.metaKey) return;
  const goal = {ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: steps.length - 1}[event.key];
  if (goal !== undefined) { event.preventDefault(); stop(); show(goal); }
  if (event.key === " " && event.target.tagName !== "BUTTON") { event.preventDefault(); toggle(); }
});
asked();
"""


def film_html(film: Film, title: str = "", card_text: str = "") -> str:
    """Return the page of a film.

    Args:
        film: that is shown.
        title: collective, algorithm, ranks.
        card_text: the algorithm's card, below the film.

    Raises:
        ValueError: there is too much to draw.
    """
    title = title or f"{film.row.name} on {film.size} ranks"
    steps = [_section(film, number, svg) for number, svg in enumerate(step_svgs(film))]
    card = f"<h2>The algorithm</h2>\n<pre>{escape(card_text)}</pre>\n" if card_text else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n<style>{SHEET}</style>\n'
        f"</head>\n<body>\n<h1>{escape(title)}</h1>\n{_controls(film)}{''.join(steps)}"
        f"<h2>What the marks mean</h2>\n{_legend(film)}{card}<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _controls(film: Film) -> str:
    return (
        '<nav><button id="back">Back</button><button id="play">Play</button><button id="next">Next</button>'
        f'<input type="range" min="0" max="{film.rounds}" value="0" aria-label="round"><output></output></nav>\n'
        '<p class="keys">Keys: <kbd>←</kbd> <kbd>→</kbd> one round back and on, <kbd>space</kbd> plays, '
        "<kbd>Home</kbd> <kbd>End</kbd> first and last.</p>\n"
    )


def _section(film: Film, number: int, svg: str) -> str:
    """Return a step: its picture, with its messages at the side."""
    name = f"Round {number - 1}" if number else "Start"
    told = [escape(arrow_text(film, arrow)) for arrow in film.frames[number].arrows]
    items = "".join(f"<li>{text}</li>" for text in told)
    what = f"<ul>{items}</ul>" if items else "<p>No messages.</p>"
    return f"<section>\n{svg}<div><h2>{name}</h2>{what}</div>\n</section>\n"


def _legend(film: Film) -> str:
    drawing = Drawing()
    marks = legend(film, made_of_ranks(film), "film")
    width = draw_legend(drawing, [], marks, 4.0, 4.0) + 8
    return drawing.svg(width, 8 + 20.0 * len(marks), "legend", style=False)
