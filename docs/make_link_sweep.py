#!/usr/bin/env python3
"""Draws docs/link-sweep.svg from results/link-sweep.json and results/link-sweep-kept.json: step
time against the rate of the emulated link, and says how much of the gathers' delay is hidden.

    docs/make_link_sweep.py            writes the picture and prints the table
    docs/make_link_sweep.py --check    changes nothing; 1 when the picture is stale
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "results"))
import chart  # noqa: E402

STYLES = {0: "dots", 1: "line", 2: "dash"}
COLOURS = {"ddp": 0, "zero3": 1, "fsdp": 2}
UNITS = {"Gbit": 1e9, "Mbit": 1e6, "kbit": 1e3}


def rows(name):
    document = json.loads((ROOT / "results" / f"{name}.json").read_text())
    for result in document["results"]:
        config = {**document["config"], **result.get("config", {})}
        match = re.match(r"([0-9.]+)([GMk]bit),", config["link"])
        if match:
            yield {
                "strategy": result["strategy"],
                "bits": float(match[1]) * UNITS[match[2]],
                "prefetch": config["prefetch"]["forward"],
                "step_ms": result["step_time_ns"]["median"] / 1e6,
                "exposed_ms": result["exposed_time_ns"] / 1e6,
            }


def series():
    found = []
    swept = list(rows("link-sweep"))
    for strategy, colour in COLOURS.items():
        for prefetch, style in STYLES.items():
            if strategy == "ddp" and prefetch != 1:
                continue  # it gathers nothing
            points = sorted((r["bits"], r["step_ms"]) for r in swept
                            if (r["strategy"], r["prefetch"]) == (strategy, prefetch))
            name = strategy if strategy == "ddp" else f"{strategy}, prefetch {prefetch}"
            found.append({"name": name, "colour": colour, "points": points, "style": style})
    kept = sorted((r["bits"], r["step_ms"]) for r in rows("link-sweep-kept"))
    found.append({"name": "fsdp, kept", "colour": 3, "points": kept, "style": "line"})
    return found


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    picture = chart.draw("Step time of each strategy against the rate of the emulated link",
                         "rate of each rank's port in bit/s", "gpt2-nano, batch 1, W = 2",
                         series()) + "\n"
    target = ROOT / "docs" / "link-sweep.svg"
    if "--check" in sys.argv:
        sys.exit(0 if target.exists() and target.read_text() == picture else
                 "docs/link-sweep.svg is stale: run docs/make_link_sweep.py")
    target.write_text(picture)
    for row in [*rows("link-sweep"), *rows("link-sweep-kept")]:
        print(f"{row['strategy']:6} {row['bits'] / 1e9:6g} Gbit/s  prefetch {row['prefetch']}  "
              f"step {row['step_ms']:7.1f} ms  exposed {row['exposed_ms']:7.1f} ms")


main()
