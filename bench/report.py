"""The table of measured ratios: as lines, as a page in Markdown, and as a bar chart."""
import html
import os


def _number(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def _time(ms):
    return f"{ms:.3g} ms" if ms >= 0.1 else f"{1e3 * ms:.3g} µs"


def line(row):
    """One row for a terminal."""
    times = ", ".join(f"{name} {_time(ms)}" for name, ms in sorted(row["ms"].items(), key=lambda item: item[1]))
    text = f"{row['title']:<56} "
    if "ratio" in row:
        text += f"{row['ratio']:.2f} of {row['best']} (goal {row['goal']}; minima {row['minima']:.2f}), "
        columns = ("memory", "memory"), ("first call", "first"), ("of the limit", "share")
        text += ", ".join(f"{label} {_number(row[key])}" for label, key in columns if row[key])
        text += f" (memory's goal {row['goal_of_memory']})" if row["goal_of_memory"] else ""
    text += f"\n{'':<57}{times}"
    for name in row["wrong"]:
        text += f"\n{'':<57}{name}: other values than eager"
    for name, why in row["out"].items():
        text += f"\n{'':<57}{name}: {why[:110]}"
    return text


def write(folder, rows, most):
    """performance.md and performance.svg into a folder."""
    measured = [row for row in rows if "ratio" in row]
    with open(os.path.join(folder, "performance.md"), "w", encoding="utf-8") as file:
        file.write(_page(measured, most))
    with open(os.path.join(folder, "performance.svg"), "w", encoding="utf-8") as file:
        file.write(_chart(measured))


def _page(rows, most):
    first = any(row["first"] for row in rows)  # did torch.compile take part?
    lines = ["# Performance", "",
             "Time of a step as a share of the strongest opponent's on the same machine, in the same minutes: less than 1 is faster.",
             "`make bench` measures and writes this page. `keep` is eager mode whose allocator retains freed memory; *memory* is the peak",
             "of what a training step or call adds to the process against eager's; "
             + ("*first call* is against `torch.compile`'s with empty caches;" if first else "`torch.compile` did not take part;"),
             "*of the limit* is the larger share of what this machine can multiply and add, or copy: above 1 where a convolution takes",
             "fewer multiplications than its definition, or where a cache serves.", "",
             f"Float32 where a row does not say otherwise, {os.cpu_count()} processors, "
             f"{most[0] / 1e9:.0f} Gflop/s and {most[1] / 1e9:.1f} GB/s at most.", "",
             "![ratios](performance.svg)", "",
             "| workload | dcml | strongest opponent | ratio | of minima | memory | " + "first call | " * first + "of the limit |",
             "|---" * (7 + first) + "|"]
    for row in rows:
        lines.append("| " + " | ".join([row["title"], _time(row["ms"]["dcml"]), f"{row['best']}, {_time(row['ms'][row['best']])}",
                                        f"**{row['ratio']:.2f}**", f"{row['minima']:.2f}", _number(row["memory"]),
                                        *([_number(row["first"])] if first else []), _number(row["share"])]) + " |")
    return "\n".join(lines) + "\n"


_ROW, _LEFT, _WIDE, _MOST = 26, 400, 420, 1.5  # pixels; the ratio at the right end


def _chart(rows):
    """Bars of ratios, and a line where both take as long."""
    height = _ROW * len(rows) + 50
    even = _LEFT + _WIDE / _MOST
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDE + 150}" height="{height}" '
             'font-family="system-ui, sans-serif" font-size="13">',
             "<style>text{fill:#24292f}.o{fill:#57606a}.w{fill:#1a7f64}.l{fill:#b35900}.e{stroke:#8c959f;stroke-dasharray:4 3}"
             "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.o{fill:#9198a1}.w{fill:#3fb950}.l{fill:#db8b3a}}</style>",
             f'<text x="{_LEFT}" y="16" class="o">time of a step, as a share of the strongest opponent\'s (shorter is faster)</text>']
    for k, row in enumerate(rows):
        y = 30 + k * _ROW
        wide = _WIDE * min(row["ratio"], _MOST) / _MOST
        parts += [f'<text x="{_LEFT - 10}" y="{y + 15}" text-anchor="end">{html.escape(row["title"])}</text>',
                  f'<rect x="{_LEFT}" y="{y + 3}" width="{wide:.1f}" height="{_ROW - 8}" rx="2"'
                  f' class="{"w" if row["ratio"] <= 1 else "l"}"/>',
                  f'<text x="{_LEFT + wide + 6:.1f}" y="{y + 15}">{row["ratio"]:.2f}</text>',
                  f'<text x="{_LEFT + _WIDE + 140}" y="{y + 15}" text-anchor="end" class="o">{html.escape(row["best"])}</text>']
    parts += [f'<line x1="{even}" x2="{even}" y1="26" y2="{height - 18}" class="e"/>',
              f'<text x="{even}" y="{height - 4}" text-anchor="middle" class="o">1</text>', "</svg>"]
    return "\n".join(parts) + "\n"
