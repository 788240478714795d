#!/usr/bin/env bash
# routes.sh [OPTION VALUE]... LAB_ROUTES [PROGRAM]
# Transfers of several ranks per host, flat and hierarchical by turns: on hosts of the lab with shaped
# interfaces, and with shared memory beside them on one host. With PROGRAM also training steps, one
# run after the other. LAB_ROUTES is build/bin/lab_routes. Run it on a quiet machine.
#   --hosts N         [2]
#   --ranks N         on each host [2]
#   --rates R[,R..]   of tc, and none [none,5gbit,1gbit,200mbit]
#   --sizes B[,B..]   payloads in bytes [1048576,4194304,33554432]
#   --repetitions N   [10]
#   --strategy A,..   of the training steps [ddp,zero3,fsdp]
#   --out PREFIX      writes PREFIX.json and PREFIX.md
set -euo pipefail
# shellcheck source=tests/lab/lab.sh
source "$(dirname "${BASH_SOURCE[0]}")/lab.sh"

hosts=2
ranks=2
rates=none,5gbit,1gbit,200mbit
sizes=1048576,4194304,33554432
repetitions=10
strategies=ddp,zero3,fsdp
prefix=
arguments=("$@")
while [[ ${1-} == --* && $# -ge 2 ]]; do
  case $1 in
    --hosts) hosts=$2 ;;
    --ranks) ranks=$2 ;;
    --rates) rates=$2 ;;
    --sizes) sizes=$2 ;;
    --repetitions) repetitions=$2 ;;
    --strategy) strategies=$2 ;;
    --out) prefix=$2 ;;
    *) break ;;
  esac
  shift 2
done
if [[ $# -eq 0 || $# -gt 2 || $1 == --* ]]; then lab_usage; fi
lab_need mpirun.openmpi python3
lab_enter "${arguments[@]}"
mkdir /run/lab
read -ra sizes <<<"${sizes//,/ }"
routes=("$1" "--repetitions=$repetitions" "${sizes[@]}")

lab_up "$hosts"
lab_mtu 9000
for rate in ${rates//,/ }; do
  lab_rate "$rate"
  lab_mpirun "$ranks" "${routes[@]}" >"/run/lab/calls.$rate"
done
if [[ $# -eq 2 ]]; then
  steps=(compare --strategy "$strategies" --quiet --autotune fixed --threads 1
    --data synthetic --batch 1)
  for rate in ${rates//,/ }; do
    lab_rate "$rate"
    for ((round = 1; round <= 3; ++round)); do
      for route in flat hierarchical; do
        lab_mpirun "$ranks" env "SHARDBENCH_MPI_ROUTE=${route/hierarchical/auto}" "$2" "${steps[@]}" \
          --out "/run/lab/steps.$rate.$route.$round.json" >/dev/null
      done
    done
  done
fi
lab_hosts=(h1)
lab_mpirun 2 "${routes[@]}" >/run/lab/calls.one-host
python3 -B "$lab_folder/routes.py" /run/lab "$prefix" tests/lab/routes.sh "${arguments[@]}"
