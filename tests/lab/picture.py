"""The picture of crossover.py: step time against the rate, lab as lines, emulation as rings."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "results"))
import chart  # noqa: E402


def draw(result):
    rows = result["rows"]
    series = []
    for colour, name in enumerate(rows[0]["step_ms"]["lab"]):
        for side, style in (("lab", "line"), ("emulation", "rings")):
            points = [(r["payload_bits_per_second"], r["step_ms"][side][name]) for r in rows]
            series.append({"name": name, "colour": colour, "points": points, "style": style})
    return chart.draw(
        "Step time of each strategy against the rate of the network",
        "rate of each host in bit/s of payload",
        "line: two hosts, measured; ring: --link, one host",
        series,
    )
