#!/usr/bin/env bash
# crossover.sh [OPTION VALUE]... PROGRAM [COMPARE-ARGUMENT...]
# Step time against the rate of the network: two hosts of the lab over MPI, and beside it the same
# work on one host with `--link` emulating that network. On a quiet machine of at least two cores.
#   --rates R[,R..]   of tc, and none [none,10gbit,5gbit,2gbit,1gbit,500mbit,200mbit]
#   --rounds N        over all rates, lab and emulation in turn [3]
#   --strategy A,B,.. [ddp,zero1,zero3,fsdp]; fsdp is also run with weights kept after forward
#   --out PREFIX      writes PREFIX.json, PREFIX.md and PREFIX.svg
set -euo pipefail
# shellcheck source=tests/lab/lab.sh
source "$(dirname "${BASH_SOURCE[0]}")/lab.sh"

mtu=9000
rates=none,10gbit,5gbit,2gbit,1gbit,500mbit,200mbit
rounds=3
strategies=ddp,zero1,zero3,fsdp
prefix=
arguments=("$@")
while [[ ${1-} == --* && $# -ge 2 ]]; do
  case $1 in
    --rates) rates=$2 ;;
    --rounds) rounds=$2 ;;
    --strategy) strategies=$2 ;;
    --out) prefix=$2 ;;
    *) break ;;
  esac
  shift 2
done
if [[ $# -eq 0 || $1 == --* ]]; then lab_usage; fi
lab_need mpirun.openmpi python3
lab_enter "${arguments[@]}"
program=$1
mkdir /run/lab
lab_up 2
lab_mtu "$mtu"

# measure NAME ARGUMENT...: one all_gather on the two hosts.
measure() {
  local name=$1
  shift
  lab_mpirun 1 "$program" collectives --kinds all_gather --check 0 --quiet "$@" \
    --out "/run/lab/$name.json" >/dev/null
}
link() { python3 -B "$lab_folder/crossover.py" link /run/lab "$1" "$mtu"; }

lab_rate none
for attempt in 1 2 3; do measure "latency.$attempt" -b 8 -e 8 -n 200; done
for rate in ${rates//,/ }; do
  lab_rate "$rate"
  measure "rate.$rate" -b 32M -e 32M -n 3 -w 1
done
# What the settings of lab_mpirun are for: the same without them.
tuned=("${lab_mpi_settings[@]}")
lab_mpi_settings=()
lab_rate 1gbit
measure "untuned.1gbit" -b 32M -e 32M -n 3 -w 1
lab_mpi_settings=("${tuned[@]}")

for ((round = 1; round <= rounds; ++round)); do
  for rate in ${rates//,/ }; do
    printf 'round %d, %s\n' "$round" "$rate" >&2
    lab_rate "$rate"
    emulated=$(link "$rate")
    for kept in false true; do
      options=("${@:2}" --quiet --autotune fixed --threads 1)
      if $kept; then
        options+=(--strategy fsdp --reshard-after-forward false)
      else
        options+=(--strategy "$strategies")
      fi
      name=$rate.$kept.$round.json
      lab_mpirun 1 "$program" "${options[@]}" --out "/run/lab/lab.$name" >/dev/null
      "$program" "${options[@]}" --world 2 --backend shm --link "$emulated" \
        --out "/run/lab/emulation.$name" >/dev/null
    done
  done
done
python3 -B "$lab_folder/crossover.py" table /run/lab "$mtu" "$prefix" tests/lab/crossover.sh "${arguments[@]}"
