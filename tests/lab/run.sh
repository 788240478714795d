#!/usr/bin/env bash
# run.sh [--hosts N] [--ranks N] [--rate RATE] [--mtu N] PROGRAM [ARGUMENT...]
# Runs PROGRAM as MPI ranks on hosts of the lab: 2 hosts, 1 rank on each, at full speed, MTU 9000,
# unless told otherwise. RATE is one of tc, such as 1gbit.
set -euo pipefail
# shellcheck source=tests/lab/lab.sh
source "$(dirname "${BASH_SOURCE[0]}")/lab.sh"

hosts=2
ranks=1
rate=none
mtu=9000
arguments=("$@")
while [[ ${1-} == --* ]]; do
  [[ $# -ge 2 ]] || break
  case $1 in
    --hosts) hosts=$2 ;;
    --ranks) ranks=$2 ;;
    --rate) rate=$2 ;;
    --mtu) mtu=$2 ;;
    *) break ;;
  esac
  shift 2
done
if [[ $# -eq 0 || $1 == --* ]]; then lab_usage; fi
lab_need mpirun.openmpi
lab_enter "${arguments[@]}"
lab_up "$hosts"
lab_mtu "$mtu"
lab_rate "$rate"
lab_mpirun "$ranks" "$@"
