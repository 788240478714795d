#!/usr/bin/env python3
"""bytes.py FOLDER FEW MANY PREFIX COMMAND...: the table of what bytes.sh has measured.

FOLDER has, for every MTU.FRAMES.WORLD.STRATEGY.STEPS, the counters of the hosts before and after the
run (.before, .after: host, sent, received) and the program's results (.json). Exit code 1: a count is
not its formula, or an interface is out of its bounds. An interface sends at least what its rank
counts; beyond that, what the protocols add:
  - a header of 66 bytes (Ethernet 14, IPv4 20, TCP with timestamps 32) per frame,
  - one such frame without data for every second frame that came, which acknowledges the two,
  - MPI's own headers, the program's metrics and small frames: allowed are 1 % and 64 KiB.
"""

import json
import pathlib
import sys

import record

HEADER = 66
TCP_IP_HEADER = 52
SLACK_SHARE = 0.01
SLACK_BYTES = 64 * 1024


def counters(path):
    lines = [line.split() for line in path.read_text().splitlines()]
    return {host: (int(sent), int(received)) for host, sent, received in lines}


def sent_by(run):
    """Bytes that each interface sent, and received, during a run."""
    before = counters(run.with_suffix(run.suffix + ".before"))
    after = counters(run.with_suffix(run.suffix + ".after"))
    return {h: [after[h][i] - before[h][i] for i in (0, 1)] for h in before}


def counted(result, rank):
    """One step of a rank: formula, sent and received bytes of the strategy, sent of the metrics."""
    of_rank = [t for t in result["traffic"] if t["rank"] == rank]
    strategy = [t for t in of_rank if t["phase"] != "metrics"]
    return {
        "formula_bytes": sum(t["formula_bytes"] or 0 for t in strategy),
        "algo_bytes": sum(t["algo_bytes"] for t in strategy),
        "wire_bytes": sum(t["wire_bytes"] for t in strategy),
        "wire_received_bytes": sum(t["wire_received_bytes"] for t in strategy),
        "metrics_bytes": sum(t["wire_bytes"] for t in of_rank if t["phase"] == "metrics"),
    }


def measure(folder, name, few, many):
    mtu, frames, world, strategy = name.split(".")
    runs = {steps: folder / f"{name}.{steps}" for steps in (few, many)}
    sent = {steps: sent_by(run) for steps, run in runs.items()}
    document = json.loads(runs[many].with_suffix(f".{many}.json").read_text())
    result = document["results"][0]
    header_share = HEADER / (int(mtu) - TCP_IP_HEADER)
    hosts = []
    for rank, host in enumerate(sent[many]):
        row = {"host": host, "rank": rank, **counted(result, rank)}
        for i, key in enumerate(("interface_bytes", "interface_received_bytes")):
            row[key] = round((sent[many][host][i] - sent[few][host][i]) / (many - few))
        allowed = (header_share + SLACK_SHARE) * row["wire_bytes"] + SLACK_BYTES
        allowed += header_share / 2 * row["wire_received_bytes"]
        row["allowed_bytes"] = round(row["wire_bytes"] + allowed)
        row["formula_ok"] = (
            row["formula_bytes"] == row["algo_bytes"] == row["wire_bytes"] and result["traffic_ok"]
        )
        row["interface_ok"] = row["wire_bytes"] <= row["interface_bytes"] <= row["allowed_bytes"]
        hosts.append(row)
    return document, {
        "strategy": strategy,
        "world_size": int(world),
        "mtu": int(mtu),
        "frames": frames,
        "same_result": result["parity"]["ok"],
        "hosts": hosts,
    }


def okay(row):
    return row["same_result"] and all(h["formula_ok"] and h["interface_ok"] for h in row["hosts"])


def line(row):
    def mean(key):
        return sum(h[key] for h in row["hosts"]) / len(row["hosts"])

    formula, wire, interface = map(mean, ("formula_bytes", "wire_bytes", "interface_bytes"))
    over = [h["interface_bytes"] / max(h["wire_bytes"], 1) - 1 for h in row["hosts"]]
    return (
        f"| {row['strategy']} | {row['world_size']} | {row['mtu']}, {row['frames']} "
        f"| {formula:,.0f} | {wire:,.0f} | {interface:,.0f} "
        f"| {100 * (interface / wire - 1):.2f} | {100 * min(over):.2f} to {100 * max(over):.2f} "
        f"| {'yes' if okay(row) else 'NO'} |"
    )


def table(rows):
    head = [
        "| strategy | hosts | MTU, frames | formula | counter | interface | over % | per host % | ok |",
        "|---|---:|---|---:|---:|---:|---:|---:|---|",
    ]
    return "\n".join(head + [line(row) for row in rows])


def main():
    folder, few, many, prefix = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4]
    newest_last = sorted(folder.glob(f"*.{many}.json"), key=lambda path: path.stat().st_mtime_ns)
    names = [path.name.removesuffix(f".{many}.json") for path in newest_last]
    rows = []
    for name in names:
        document, row = measure(folder, name, few, many)
        rows.append(row)
    text = "Bytes that a rank sends in one step, mean over ranks\n\n" + table(rows)
    print(text)
    if prefix:
        context = record.context_of(document, sys.argv[5:], few_steps=few, many_steps=many)
        config = record.config_of(document)
        record.write(prefix, {"context": context, "config": config, "rows": rows}, {"md": text})
    return 0 if rows and all(map(okay, rows)) else 1


sys.exit(main())
