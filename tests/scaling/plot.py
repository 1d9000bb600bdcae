"""Draws the predictions: parallel efficiency over ranks, with circles where the all-reduce was simulated."""
from math import log2

LINES = {  # class, name
    ("CPU", "InfiniBand"): ("a", "CPU, InfiniBand"),
    ("CPU", "Ethernet"): ("b", "CPU, Ethernet"),
    ("GPU", "InfiniBand"): ("c", "GPU (estimate), InfiniBand"),
    ("GPU", "Ethernet"): ("d", "GPU (estimate), Ethernet"),
}
STYLE = """
  svg { font: 13px sans-serif }
  .paper { fill: #fff } text { fill: #222 } .grid { stroke: #ddd; fill: none }
  .line { fill: none; stroke-width: 2.5 } circle { fill: #fff; stroke-width: 1.5 }
  .a { stroke: #0b62b5 } .b { stroke: #b34700 } .c { stroke: #0a7d53 } .d { stroke: #9c2a86 }
  .line.b { stroke-dasharray: 8 3 } .line.c { stroke-dasharray: 2 3 } .line.d { stroke-dasharray: 10 3 2 3 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #14171c } text { fill: #e6e6e6 } .grid { stroke: #3a3f47 } circle { fill: #14171c }
    .a { stroke: #6cb4ff } .b { stroke: #ffa657 } .c { stroke: #56d8a4 } .d { stroke: #ee8fdc }
  }
"""
WIDTH, HEIGHT, TOP, DECADES = 340, 220, 66, 12


def place(left, ranks, efficiency):
    return left + WIDTH * log2(ranks) / DECADES, TOP + HEIGHT * (1 - efficiency)


def axes(left, title):
    yield f'<text x="{left}" y="{TOP - 16}" font-weight="bold">{title}</text>'
    for percent in range(0, 101, 25):
        x, y = place(left, 1, percent / 100)
        yield f'<path class="grid" d="M{x} {y}h{WIDTH}"/>'
        yield f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{percent} %</text>'
    for exponent in range(0, DECADES + 1, 2):
        x, y = place(left, 1 << exponent, 0)
        yield f'<path class="grid" d="M{x:.1f} {y}v5"/>'
        yield f'<text x="{x:.1f}" y="{y + 20}" text-anchor="middle">{1 << exponent:,}</text>'
    yield f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 40}" text-anchor="middle">ranks</text>'


def panel(left, title, lines, circles):
    """One diagram, on a logarithmic axis of ranks: lines and circles are {key of LINES: [(ranks, efficiency)]}."""
    yield from axes(left, title)
    for key, (style, _) in LINES.items():
        points = " ".join("{:.1f},{:.1f}".format(*place(left, *point)) for point in lines[key])
        yield f'<polyline class="line {style}" points="{points}"/>'
    for key, (style, _) in LINES.items():
        for point in circles[key]:
            x, y = place(left, *point)
            yield f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


def legend(top):
    for i, (style, name) in enumerate(LINES.values()):
        x, y = 60 + 320 * (i % 2), top + 22 * (i // 2)
        yield f'<polyline class="line {style}" points="{x},{y - 4} {x + 40},{y - 4}"/>'
        yield f'<text x="{x + 48}" y="{y}">{name}</text>'
    yield f'<circle class="a" cx="80" cy="{top + 40}" r="3.5"/>'
    yield f'<text x="108" y="{top + 44}">circle: the same with the all-reduce simulated (SimGrid)</text>'


def plot(panels):
    """An SVG of two panels, each (title, lines, circles)."""
    ends = [f"{title}: " + ", ".join(f"{name} {lines[key][-1][1]:.1%}" for key, (_, name) in LINES.items())
            for title, lines, _ in panels]
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 850 420" role="img" aria-labelledby="title desc">',
             '<title id="title">Parallel efficiency from 1 to 4,096 ranks, modelled</title>',
             f'<desc id="desc">Modelled, not measured. At 4,096 ranks: {"; ".join(ends)}.</desc>',
             f"<style>{STYLE}</style>",
             '<rect class="paper" width="850" height="420"/>',
             '<text x="60" y="24" font-size="15">Parallel efficiency, modelled, over the number of ranks</text>']
    for left, content in zip((60, 475), panels):
        parts += panel(left, *content)
    return "\n".join([*parts, *legend(TOP + HEIGHT + 76), "</svg>"]) + "\n"
