"""Line charts as SVG: step times against link rates, both axes logarithmic."""

import math

COLOURS = ["#0b6e99", "#d9730d", "#6940a5", "#0f7b3e", "#b3261e"]
WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 46, 56


def _ticks(low, high):
    """1, 2 and 5 times powers of ten in a range."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [m * 10**p for p in powers for m in (1, 2, 5)]
    return [v for v in values if low <= v <= high]


def _scale(low, high, begin, end):
    return lambda v: begin + (end - begin) * math.log(v / low) / math.log(high / low)


def _rate(bits):
    return f"{bits / 1e9:g} G" if bits >= 1e9 else f"{bits / 1e6:g} M"


def _text(x, y, text, anchor="middle"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _axes(x, y, rates, times, x_label, note):
    out = []
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in _ticks(*rates):
        out.append(f'<path class="grid" d="M{x(value):.1f} {TOP}V{bottom}"/>')
        out.append(_text(x(value), bottom + 18, _rate(value)))
    for value in _ticks(*times):
        out.append(f'<path class="grid" d="M{LEFT} {y(value):.1f}H{right}"/>')
        out.append(_text(LEFT - 8, y(value) + 4, f"{value:g}", "end"))
    out.append(_text((LEFT + right) / 2, HEIGHT - 14, x_label))
    out.append(_text(LEFT, TOP - 14, "step in ms", "start"))
    out.append(_text(right, TOP - 14, note, "end"))
    return out


def draw(title, x_label, note, series):
    """`series`: dicts of name, colour (a number), points [(bit/s, ms)], and the style: "line",
    "dash", "dots", or "rings" (no entry of its own in the legend)."""
    bits = [b for one in series for b, _ in one["points"]]
    all_times = [t for one in series for _, t in one["points"]]
    rates = (min(bits) * 0.9, max(bits) * 1.1)
    times = (min(all_times) * 0.9, max(all_times) * 1.1)
    x = _scale(*rates, LEFT, WIDTH - RIGHT)
    y = _scale(*times, HEIGHT - BOTTOM, TOP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" fill="#333">',
        f"<title>{title}</title>",
        "<style>.grid{stroke:#ddd;fill:none}.line{fill:none;stroke-width:2}.ring{fill:#fff}"
        ".dash{stroke-dasharray:6 4}.dots{stroke-dasharray:2 4}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *_axes(x, y, rates, times, x_label, note),
    ]
    shown = 0
    for one in series:
        colour, style = COLOURS[one["colour"]], one["style"]
        points = [(x(b), y(t)) for b, t in one["points"]]
        if style == "rings":
            out += [f'<circle class="ring" cx="{px:.1f}" cy="{py:.1f}" r="4" stroke="{colour}" '
                    'stroke-width="1.5"/>' for px, py in points]
            continue
        path = "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        out.append(f'<path class="line {style}" stroke="{colour}" d="M{path}"/>')
        left, top = WIDTH - RIGHT + 18, TOP + 14 + 20 * shown
        shown += 1
        out.append(f'<path class="line {style}" stroke="{colour}" d="M{left} {top}h22"/>')
        out.append(_text(left + 30, top + 4, one["name"], "start"))
    return "\n".join(out + ["</svg>"])
