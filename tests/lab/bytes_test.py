#!/usr/bin/env python3
"""bytes.py must call a table right that is right, and wrong what is off by a byte too many."""

import json
import pathlib
import subprocess
import sys
import tempfile

SENT = 10_000_000
EXTRA_STEPS = 6


def traffic(rank, formula, wire):
    row = {"rank": rank, "phase": "backward", "formula_bytes": formula, "algo_bytes": formula}
    row |= {"wire_bytes": wire, "wire_received_bytes": SENT}
    metrics = {"rank": rank, "phase": "metrics", "formula_bytes": None, "algo_bytes": 96}
    return [row, metrics | {"wire_bytes": 96, "wire_received_bytes": 96}]


def status(per_step, formula=SENT, wire=SENT, same=True):
    """Exit code of bytes.py where host h2's interface sent that much per step."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        result = {"traffic": traffic(0, SENT, SENT) + traffic(1, formula, wire)}
        result |= {"traffic_ok": True, "parity": {"ok": same}}
        for steps, sent in ((2, 1000), (8, 1000 + EXTRA_STEPS * per_step)):
            run = f"9000.wire.2.ddp.{steps}"
            (folder / f"{run}.json").write_text(json.dumps({"results": [result]}))
            (folder / f"{run}.before").write_text("h1 7 7\nh2 7 7\n")
            first = 1000 if steps == 2 else 1000 + EXTRA_STEPS * SENT
            (folder / f"{run}.after").write_text(f"h1 {7 + first} 7\nh2 {7 + sent} 7\n")
        script = pathlib.Path(__file__).with_name("bytes.py")
        return subprocess.run([sys.executable, script, folder, "2", "8", ""], check=False).returncode


# 66 bytes in each frame of 8948, half of that for what came, 1 % and 64 KiB.
ALLOWED = SENT + round((66 / 8948 * 1.5 + 0.01) * SENT + 65536)
assert status(SENT) == 0
assert status(ALLOWED) == 0
assert status(ALLOWED + 1) == 1
assert status(SENT - 1) == 1
assert status(SENT, formula=SENT - 1) == 1
assert status(SENT, wire=SENT - 1) == 1
assert status(SENT, same=False) == 1
