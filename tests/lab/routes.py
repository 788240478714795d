#!/usr/bin/env python3
"""routes.py FOLDER PREFIX COMMAND...: tables of what routes.sh has measured.

FOLDER has calls.RATE, the lines of lab_routes, the first of which tells about the machine, and steps.RATE.ROUTE.ROUND.json of `compare`.
Exit code 1: a hierarchical all_gather, broadcast or all_reduce did not send fewer bytes between
hosts than a flat one, by the program's count or the interfaces'.
"""

import json
import pathlib
import sys

import record

HANDED_ON = ("all_reduce", "all_gather", "broadcast")
ONE_HOST = "one-host"


def calls(folder):
    rows = []
    for path in sorted(folder.glob("calls.*"), key=lambda path: path.stat().st_mtime_ns):
        rate = path.name.removeprefix("calls.")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        rows += [{"rate": rate, **line} for line in lines if "kind" in line]
    return rows


def context(folder, command):
    path = sorted(folder.glob("calls.*"))[0]
    first = json.loads(path.read_text().splitlines()[0])
    args = [f"build/bin/{pathlib.Path(w).name}" if "/bin/" in w else w for w in command]
    return {**first["context"], "mpi_version": record.mpi_version(), "args": args}


def steps(folder):
    """Milliseconds of the fastest step by rate, strategy and route."""
    fastest = {}
    for path in sorted(folder.glob("steps.*.json")):
        _, rate, route, _, _ = path.name.split(".")
        for row in json.loads(path.read_text())["results"]:
            assert row["parity"]["ok"] and row["traffic_ok"], path
            times = fastest.setdefault((rate, row["strategy"]), {})
            ms = row["step_time_ns"]["min"] / 1e6
            times[route] = min(ms, times.get(route, ms))
    return [{"rate": rate, "strategy": s, "step_ms": t} for (rate, s), t in fastest.items()]


def times(row, route):
    return f"{row[route]['min_us'] / 1e3:.3g} ({row[route]['median_us'] / 1e3:.3g})"


def gain(row, route):
    return "{:.2f} ({:.2f})".format(
        *(row["flat"][key] / row[route][key] for key in ("min_us", "median_us"))
    )


def lab_table(rows):
    lines = [
        "Between hosts: ms per call, fastest (median), and MB that the busiest host sends in one call,",
        "as counted and by its interface.",
        "",
        "| rate | collective | MiB | flat | hierarchical | flat / hierarchical | MB flat | MB hierarchical |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        sent = [
            f"{row[route]['counted_bytes'] / 1e6:.2f}, {row[route]['interface_bytes'] / 1e6:.2f}"
            for route in ("flat", "hierarchical")
        ]
        lines.append(
            f"| {row['rate']} | {row['kind']} | {row['bytes'] / 2**20:g} | {times(row, 'flat')} "
            f"| {times(row, 'hierarchical')} | {gain(row, 'hierarchical')} | {sent[0]} | {sent[1]} |"
        )
    return lines


def host_table(rows):
    lines = [
        "",
        "On one host of two ranks: ms per call, fastest (median).",
        "",
        "| collective | MiB | flat mpi | hierarchical mpi | shm | flat / hierarchical | flat / shm |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [times(row, route) for route in ("flat", "hierarchical", "shm")]
        cells += [gain(row, route) for route in ("hierarchical", "shm")]
        lines.append(f"| {row['kind']} | {row['bytes'] / 2**20:g} | " + " | ".join(cells) + " |")
    return lines


def step_table(rows):
    lines = [
        "",
        "Training steps: ms, fastest of all rounds.",
        "",
        "| rate | strategy | flat | hierarchical | flat / hierarchical |",
        "|---|---|---:|---:|---:|",
    ]
    for row in rows:
        flat, ours = row["step_ms"]["flat"], row["step_ms"]["hierarchical"]
        lines.append(
            f"| {row['rate']} | {row['strategy']} | {flat:.0f} | {ours:.0f} | {flat / ours:.2f} |"
        )
    return lines


def sends_less(row):
    if row["kind"] not in HANDED_ON:
        return True
    return all(
        row["hierarchical"][key] < row["flat"][key] for key in ("counted_bytes", "interface_bytes")
    )


def main():
    folder, prefix = pathlib.Path(sys.argv[1]), sys.argv[2]
    rows = calls(folder)
    lab = [row for row in rows if row["rate"] != ONE_HOST]
    lines = lab_table(lab) + host_table([row for row in rows if row["rate"] == ONE_HOST])
    trained = steps(folder)
    if trained:
        lines += step_table(trained)
    text = "\n".join(lines)
    print(text)
    if prefix:
        about = context(folder, sys.argv[3:])
        record.write(prefix, {"context": about, "calls": rows, "steps": trained}, {"md": text})
    return 0 if lab and all(map(sends_less, lab)) else 1


sys.exit(main())
