"""Runs ours and PyTorch's DDP and FSDP2 in turn, several rounds, and prints one table.

Every round runs all sides once, every second round in reverse order, so that what the machine does
meanwhile hits all of them. Called by compare_peers.sh.
"""

import argparse
import datetime
import json
import os
import re
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEER_OF = {"ddp": "ddp", "fsdp": "fsdp2"}  # ours: PyTorch's
PEER_NAMES = {"ddp": "PyTorch DDP", "fsdp2": "PyTorch FSDP2"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--result", required=True, help="file for the raw JSON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--strategy", default="ddp,fsdp", help="of " + ", ".join(PEER_OF))
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--tied", action="store_true", help="head shares the token embedding")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1, help="sequences per rank")
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10, help="measured steps per round")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--program", default=os.path.join(ROOT, "build/bin/shardbench"))
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    for strategy in options.strategy.split(","):
        if strategy not in PEER_OF:
            parser.error(f"unknown strategy {strategy}: one of {', '.join(PEER_OF)}")
    return options


def work_flags(options):
    flags = ["--model", options.model] + ([] if options.tied else ["--untied"])
    for name in ("world", "batch", "seq", "steps", "warmup", "threads"):
        flags += [f"--{name}", str(getattr(options, name))]
    return flags


def run(command):
    """Runs a command that writes JSON to `--out FILE`; returns (command line, document)."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        environment = dict(os.environ)
        environment.setdefault("SHARDBENCH_DATA_DIR", os.path.join(ROOT, "build/data"))
        done = subprocess.run(
            command + ["--out", out], env=environment, stdout=subprocess.DEVNULL, check=False
        )
        if done.returncode != 0:
            sys.exit(f"compare_peers: exit status {done.returncode} of: {shlex.join(command)}")
        with open(out) as file:
            shown = [os.path.relpath(c, ROOT) if c.startswith(ROOT + "/") else c for c in command]
            return shlex.join(shown + ["--out", "FILE"]), json.load(file)


def run_ours(options):
    command = [options.program, "compare", *work_flags(options)]
    command += ["--strategy", options.strategy, "--format", "json"]
    line, document = run(command)
    samples = {}
    for result in document["results"]:
        memory = result["memory_bytes"]
        ranks = result.get("per_rank", [])
        samples["shardbench " + result["strategy"]] = {
            "step_ms": [ns / 1e6 for ns in result["step_time_ns"]["times"]],
            "rss_peak_bytes": max([r["rss_peak_bytes"] for r in ranks] or [memory["rss_peak"]]),
            "pss_bytes": max([r["pss_peak_bytes"] for r in ranks] or [memory["pss_peak"]]),
            "losses": result.get("losses", []),
        }
    return line, document, samples


def run_peer(options, peer):
    script = os.path.join(ROOT, "bench/peers/train.py")
    line, document = run([sys.executable, script, "--strategy", peer, *work_flags(options)])
    return line, document, {PEER_NAMES[peer]: document["results"][0]}


def machine():
    with open("/proc/cpuinfo") as lines:
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    with open("/proc/meminfo") as lines:
        memory = int(lines.readline().split()[1]) * 1024
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def summarize(samples):
    steps = [ms for sample in samples for ms in sample["step_ms"]]
    return {
        "steps": len(steps),
        "min_ms": min(steps),
        "median_ms": statistics.median(steps),
        "rss_peak_bytes": max(sample["rss_peak_bytes"] for sample in samples),
        "pss_bytes": max(sample["pss_bytes"] for sample in samples),
    }


def table(summary, strategies):
    lines = [
        "| | step ms, min | step ms, median | median / PyTorch | VmHWM MiB | Pss MiB |",
        "|---|---|---|---|---|---|",
    ]
    for ours in strategies:
        peer = summary[PEER_NAMES[PEER_OF[ours]]]
        for name in ("shardbench " + ours, PEER_NAMES[PEER_OF[ours]]):
            row = summary[name]
            lines.append(
                f"| {name} | {row['min_ms']:.1f} | {row['median_ms']:.1f}"
                f" | {row['median_ms'] / peer['median_ms']:.2f}"
                f" | {row['rss_peak_bytes'] / 2**20:.0f} | {row['pss_bytes'] / 2**20:.0f} |"
            )
    return "\n".join(lines)


def main():
    options = parse_arguments()
    strategies = options.strategy.split(",")
    sides = [lambda: run_ours(options)]
    sides += [lambda peer=PEER_OF[name]: run_peer(options, peer) for name in strategies]

    samples, runs = {}, []
    for number in range(1, options.rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            line, document, found = side()
            runs.append({"round": number, "command": line, "document": document})
            for name, sample in found.items():
                samples.setdefault(name, []).append(sample)
                median = statistics.median(sample["step_ms"])
                print(f"round {number}/{options.rounds}: {name}: {median:.1f} ms", file=sys.stderr)

    summary = {name: summarize(found) for name, found in samples.items()}
    result = {
        "machine": machine(),
        "command": shlex.join(["bash", "bench/peers/compare_peers.sh", *sys.argv[1:]]),
        "summary": summary,
        "runs": runs,
    }
    os.makedirs(os.path.dirname(os.path.abspath(options.result)), exist_ok=True)
    # Folders of this checkout and temporary ones say nothing about the result.
    text = json.dumps(result, indent=1).replace(ROOT + os.sep, "")
    text = re.sub(re.escape(tempfile.gettempdir()) + r"/[^/\"]+/", "", text)
    with open(options.result, "w") as file:
        file.write(text + "\n")
    print(table(summary, strategies))


if __name__ == "__main__":
    main()
