#!/usr/bin/env python3
"""Makes scaling.svg of scaling.json, and prints its tables in Markdown."""
import json
from math import log2
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINES = {  # class, name
    ("cpu", "infiniband"): ("a", "CPU, InfiniBand"),
    ("cpu", "ethernet"): ("b", "CPU, Ethernet"),
    ("gpu", "infiniband"): ("c", "GPU (estimate), InfiniBand"),
    ("gpu", "ethernet"): ("d", "GPU (estimate), Ethernet"),
}
STYLE = """
  svg { background: #fff; font: 13px sans-serif }
  text { fill: #222 } .grid { stroke: #ddd } polyline { fill: none; stroke-width: 2.5 }
  .a { stroke: #0b62b5 } .b { stroke: #b34700; stroke-dasharray: 8 3 }
  .c { stroke: #0a7d53; stroke-dasharray: 2 3 } .d { stroke: #9c2a86; stroke-dasharray: 10 3 2 3 }
  @media (prefers-color-scheme: dark) {
    svg { background: #14171c } text { fill: #e6e6e6 } .grid { stroke: #3a3f47 }
    .a { stroke: #6cb4ff } .b { stroke: #ffa657 } .c { stroke: #56d8a4 } .d { stroke: #ee8fdc }
  }
"""


def panel(left, title, kind, rows):
    """One diagram: parallel efficiency in % over ranks, on a logarithmic axis."""
    width, height, top, decades = 330, 220, 60, 12

    def place(ranks, efficiency):
        return f"{left + width * log2(ranks) / decades:.1f},{top + height * (1 - efficiency):.1f}"

    parts = [f'<text x="{left}" y="{top - 16}" font-weight="bold">{title}</text>']
    for percent in range(0, 101, 25):
        y = top + height * (1 - percent / 100)
        parts.append(f'<path class="grid" d="M{left} {y}h{width}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{percent} %</text>')
    for exponent in range(0, decades + 1, 2):
        x = left + width * exponent / decades
        parts.append(f'<text x="{x:.1f}" y="{top + height + 20}" text-anchor="middle">{1 << exponent}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle">ranks</text>')
    for key, (style, _) in LINES.items():
        points = [place(row["ranks"], row[f"{kind}_efficiency"]) for row in rows
                  if (row["device"], row["network"]) == key]
        parts.append(f'<polyline class="{style}" points="{" ".join(points)}"/>')
    return parts


def plot(rows):
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 380" role="img" aria-labelledby="title desc">',
             '<title id="title">Predicted parallel efficiency from 1 to 4,096 ranks</title>']
    ends = [f"{name}: {row['weak_efficiency']:.0%} weak, {row['strong_efficiency']:.1%} strong"
            for key, (_, name) in LINES.items() for row in rows
            if (row["device"], row["network"], row["ranks"]) == (*key, 4096)]
    parts.append(f'<desc id="desc">Modelled, not measured. At 4,096 ranks: {"; ".join(ends)}.</desc>')
    parts.append(f"<style>{STYLE}</style>")
    parts += ['<text x="60" y="22" font-size="15">Parallel efficiency, modelled</text>']
    parts += panel(60, "Weak: 100 images a rank", "weak", rows)
    parts += panel(455, "Strong: 4,096 images in all", "strong", rows)
    for i, (style, name) in enumerate(LINES.values()):
        x = 60 + 360 * (i % 2)
        y = 342 + 20 * (i // 2)
        parts.append(f'<polyline class="{style}" points="{x},{y - 4} {x + 40},{y - 4}"/>')
        parts.append(f'<text x="{x + 48}" y="{y}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def table(titles, rows):
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def measured_tables(report):
    parts = ("compute_ms", "communication_ms", "data_ms", "rest_ms", "step_ms")
    yield table(["ranks", "compute", "communication", "data", "rest", "step, ms"],
                [[m["ranks"], *(f"{m['step'][part]:.2f}" for part in parts)] for m in report["measured"]])
    yield table(["ranks", "all-reduce", "alpha, us", "1/beta, GB/s", "mean (worst) error of the fit"],
                [[f["ranks"], f["algorithm"].replace("_", " "), f"{f['alpha_us']:.1f}", f"{f['gigabytes_per_s']:.1f}",
                  f"{f['mean_error_percent']:.0f} ({f['worst_error_percent']:.0f}) %"] for f in report["fits"]])


def predicted_table(rows):
    shown = [row for row in rows if row["ranks"] in (8, 64, 512, 4096)]
    return table(["step", "network", "ranks", "all-reduce, us", "weak: ms (efficiency)", "strong: ms (efficiency)"],
                 [[row["device"].upper(), row["network"], f"{row['ranks']:,}", f"{row['all_reduce_us']:.0f}",
                   f"{row['weak_ms']:.2f} ({row['weak_efficiency']:.0%})",
                   f"{row['strong_ms']:.2f} ({row['strong_efficiency']:.1%})"] for row in shown])


def simulated_table(rows):
    return table(["network", "all-reduce", "ranks", "simulated, us", "formula, us", "deviation"],
                 [[row["network"], row["algorithm"].replace("_", " "), f"{row['ranks']:,}",
                   f"{row['simulated_us']:.1f}", f"{row['formula_us']:.1f}", f"{row['deviation_percent']:+.2f} %"]
                  for row in rows])


def main():
    report = json.loads((HERE / "scaling.json").read_text())
    (HERE / "scaling.svg").write_text(plot(report["predicted"]))
    print("\n".join([*measured_tables(report), predicted_table(report["predicted"]),
                     simulated_table(report["simulated"])]))


if __name__ == "__main__":
    main()
