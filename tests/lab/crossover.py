#!/usr/bin/env python3
"""What crossover.sh has measured.

crossover.py link FOLDER RATE MTU                  the lab's network as --link takes it
crossover.py table FOLDER MTU PREFIX COMMAND...    table and picture

FOLDER has latency.N.json, rate.RATE.json and untuned.RATE.json of `collectives`, and for lab and
emulation {lab,emulation}.RATE.KEPT.ROUND.json of `compare`. Rates are tc's: bits of whole frames per
second. A step time is that of the fastest step of all rounds.
"""

import json
import math
import pathlib
import sys

import picture
import record

TCP_IP_HEADER = 52
ETHERNET_HEADER = 14
CLEAR = 0.03  # of a step time: less is called equal
UNITS = {"gbit": 1e9, "mbit": 1e6}


def load(path):
    return json.loads(path.read_text())


def bits_per_second(rate):
    """Of frames; None where nothing limits them."""
    return None if rate == "none" else float(rate[:-4]) * UNITS[rate[-4:]]


def all_gather(path):
    """Microseconds of the call, and the bits per second that each rank sent at."""
    call = load(path)["collectives"][0]
    best = min(call["in_place"]["time_us"], call["out_of_place"]["time_us"])
    return best, call["size"] / call["world_size"] * 8 / best * 1e6


def latency_us(folder):
    return min(all_gather(path)[0] for path in folder.glob("latency.*.json"))


def payload_rate(folder, rate, mtu):
    """Bits of payload per second: of the headers' share, or as measured where nothing limits it."""
    frames = bits_per_second(rate)
    if frames is None:
        return all_gather(folder / "rate.none.json")[1]
    return frames * (mtu - TCP_IP_HEADER) / (mtu + ETHERNET_HEADER)


def link(folder, rate, mtu):
    return f"{payload_rate(folder, rate, mtu) / 1e6:.1f}Mbit,{latency_us(folder):.1f}us"


def step_times(folder, side, rate):
    """Name to milliseconds."""
    fastest = {}
    for path in sorted(folder.glob(f"{side}.{rate}.*.json")):
        kept = path.name.split(".")[-3] == "true"
        for row in load(path)["results"]:
            assert row["parity"]["ok"] and row["traffic_ok"], path
            name = "fsdp, kept" if kept else row["strategy"]
            fastest.setdefault(name, []).append(row["step_time_ns"]["min"] / 1e6)
    return {name: min(times) for name, times in fastest.items()}


def crossings(points, first, second):
    """Rates (of payload) at which the two take equally long: straight lines over log rate between the
    points at which they differ clearly."""
    leads = [(rate, (a[first] - a[second]) / a[second]) for rate, a in points]
    clear = [(rate, lead) for rate, lead in leads if abs(lead) >= CLEAR]
    found = []
    for (rate_a, a), (rate_b, b) in zip(clear, clear[1:]):
        if a * b < 0:
            found.append(math.exp(math.log(rate_a) + a / (a - b) * math.log(rate_b / rate_a)))
    return found


def rate_text(bits):
    return f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"


def measurements(folder, mtu):
    rates = [path.name[len("rate.") : -len(".json")] for path in folder.glob("rate.*.json")]
    rows = []
    for rate in rates:
        sides = {side: step_times(folder, side, rate) for side in ("lab", "emulation")}
        measured = all_gather(folder / f"rate.{rate}.json")[1]
        rows.append(
            {
                "rate": rate,
                "payload_bits_per_second": round(payload_rate(folder, rate, mtu)),
                "measured_bits_per_second": round(measured),
                "link": link(folder, rate, mtu),
                "step_ms": sides,
            }
        )
    return sorted(rows, key=lambda row: -row["payload_bits_per_second"])


def all_crossings(rows):
    names = list(rows[0]["step_ms"]["lab"])
    found = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            pair = {"pair": [first, second]}
            for side in ("lab", "emulation"):
                points = [(r["payload_bits_per_second"], r["step_ms"][side]) for r in rows]
                pair[side] = [round(bits) for bits in crossings(points, first, second)]
            if pair["lab"] or pair["emulation"]:
                found.append(pair)
    return found


def table(result):
    rows = result["rows"]
    names = list(rows[0]["step_ms"]["lab"])
    lines = [
        "Step time in ms: lab / emulation, and by how much the emulation is off. Bold: the fastest of the side.",
        "",
        "| frames | measured | emulated | " + " | ".join(names) + " |",
        "|---|---:|---|" + "---:|" * len(names),
    ]
    for row in rows:
        lab, emulation = row["step_ms"]["lab"], row["step_ms"]["emulation"]
        cells = []
        for name in names:
            ours, model = (f"{side[name]:.0f}" for side in (lab, emulation))
            ours = f"**{ours}**" if lab[name] == min(lab.values()) else ours
            model = f"**{model}**" if emulation[name] == min(emulation.values()) else model
            cells.append(f"{ours} / {model} ({100 * (emulation[name] / lab[name] - 1):+.0f} %)")
        measured = rate_text(row["measured_bits_per_second"])
        lines.append(f"| {row['rate']} | {measured} | {row['link']} | " + " | ".join(cells) + " |")
    lines += ["", "| equally fast | lab | emulation |", "|---|---|---|"]
    for pair in result["crossings"]:
        at = [", ".join(map(rate_text, pair[side])) or "-" for side in ("lab", "emulation")]
        lines.append(f"| {' and '.join(pair['pair'])} | {at[0]} | {at[1]} |")
    return "\n".join(lines)


def write(folder, mtu, prefix, command):
    rows = measurements(folder, mtu)
    sample = load(sorted(folder.glob("lab.*.false.*.json"))[0])
    untuned = all_gather(folder / "untuned.1gbit.json")[1]
    result = {
        "context": record.context_of(sample, command, mtu=mtu),
        "config": record.config_of(sample),
        "latency_us": latency_us(folder),
        "default_mpi_settings": {"rate": "1gbit", "measured_bits_per_second": round(untuned)},
        "rows": rows,
        "crossings": all_crossings(rows),
    }
    text = table(result)
    print(text)
    if prefix:
        record.write(prefix, result, {"md": text, "svg": picture.draw(result)})


def main():
    if sys.argv[1] == "link":
        print(link(pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
    else:
        write(pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])


main()
