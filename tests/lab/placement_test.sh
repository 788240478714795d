#!/usr/bin/env bash
# placement_test.sh PROGRAM: 2 hosts with 2 ranks each. Every strategy ends with the same bits as one
# process, and all bytes are as by formula.
set -euo pipefail
# shellcheck source=tests/lab/lab.sh
source "$(dirname "${BASH_SOURCE[0]}")/lab.sh"
lab_need mpirun.openmpi python3
lab_enter "$@"
lab_up 2
lab_mpirun 2 "$1" compare --strategy ddp,zero1,zero2,zero3,fsdp --model gpt2-nano --layers 2 \
  --hidden 33 --heads 3 --vocab 67 --batch 1 --seq 16 --steps 2 --warmup 1 --data synthetic --autotune fixed \
  --quiet --out /run/result.json
python3 - /run/result.json <<'CHECK'
import json, sys
document = json.load(open(sys.argv[1]))
assert document["okay"] and document["context"]["backend"] == "mpi"
rows = document["results"]
assert [row["strategy"] for row in rows] == ["ddp", "zero1", "zero2", "zero3", "fsdp"]
assert all(row["world_size"] == 4 and row["parity"]["bit_equal"] and row["traffic_ok"] for row in rows)
assert len({row["parameter_hash"] for row in rows}) == 1
CHECK
