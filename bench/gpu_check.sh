#!/usr/bin/env bash
# What needs a GPU, on a machine that has one, in a few minutes: the tests labelled gpu (real NCCL
# at W=1 and, with ranks that share a device if there is just one, W=2), then the program's parity
# over NCCL, computing on the CPU and on the GPU.
#   bash bench/gpu_check.sh [FOLDER]     results go to FOLDER (default $OUT, else results/gpu)
# Environment: CMAKE_PREFIX_PATH  LibTorch with its CUDA side (2.11 or newer), as everywhere
#              GPU_CHECK_BUILD    build folder (default build/gpu)
# Exit status: 0 when everything passed, 1 when something failed, 2 without a device.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:-${OUT:-$root/results/gpu}}
build=${GPU_CHECK_BUILD:-$root/build/gpu}
failed=0

# run NAME COMMAND...: its output goes to FOLDER/NAME.txt, one line about it to summary.txt.
run() {
  local name=$1 start=$SECONDS status=passed
  shift
  "$@" >"$out/$name.txt" 2>&1 || {
    status="FAILED (exit $?)"
    failed=1
    tail -n 20 "$out/$name.txt"
  }
  printf '%-24s %s in %d s\n' "$name" "$status" $((SECONDS - start)) | tee -a "$out/summary.txt"
}

if ! devices=$(nvidia-smi -L 2>&1); then
  echo "gpu_check: no CUDA device: nvidia-smi -L lists none" >&2
  exit 2
fi
mkdir -p "$out"
{
  date -u +%Y-%m-%dT%H:%MZ
  git -C "$root" rev-parse HEAD 2>/dev/null || echo "no git"
  echo "$devices"
} >"$out/summary.txt"

# shellcheck disable=SC2317  # called through run
configure() {
  cmake -G Ninja -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DSHARDBENCH_NCCL=ON
}
run configure configure
[[ $failed == 0 ]] || exit 1
run build ninja -C "$build" nccl_gpu_test ops_gpu_test nccl_double_test nccl_load_test shardbench
run tests ctest --test-dir "$build" -L gpu --output-on-failure --timeout 120

# Every strategy against one process, over NCCL. The program's ranks meet as torchrun's would.
# parity WORLD FLAG...
# shellcheck disable=SC2317  # called through run
parity() {
  local world=$1 rank status=0
  local -a ranks=()
  shift
  for ((rank = 0; rank < world; ++rank)); do
    RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$world \
      MASTER_ADDR=127.0.0.1 MASTER_PORT=$((29500 + world)) NCCL_HOSTID=rank$rank \
      timeout 100 "$build/bin/shardbench" compare --backend nccl --data synthetic "$@" &
    ranks+=($!)
  done
  for rank in "${ranks[@]}"; do wait "$rank" || status=$?; done
  return "$status"
}
for world in 1 2; do
  run "parity-$world" parity "$world" --model mlp --autotune fixed --warmup 1 --steps 2
done
# Step times of these are between events of the GPU.
for world in 1 2; do
  run "cuda-$world" parity "$world" --device cuda --strategy ddp,zero1,zero2,zero3,fsdp \
    --model gpt2-nano --warmup 2 --steps 5 --out "$out/cuda-$world.json"
done
exit "$failed"
