#!/usr/bin/env bash
# bytes.sh [OPTION VALUE]... PROGRAM [COMPARE-ARGUMENT...]
# The bytes of one training step three times: by formula, as the program counts them, and as the
# interfaces of the lab's hosts count them (one rank per host). Formula and count must be equal, and
# an interface may have sent no less than its rank and little more (see bytes.py).
#   --hosts N[,N..]      hosts, one rank on each [2]
#   --strategy A,B,..    [ddp,zero1,zero2,zero3,fsdp]
#   --mtu N[,N..]        bytes per frame without its Ethernet header [9000]
#   --frames KIND[,..]   wire: counted as frames of one MTU; kernel: as the kernel hands them over,
#                        up to 64 KiB with one header [wire]
#   --out PREFIX         writes PREFIX.json and PREFIX.md
# What starting and ending sends falls out: each figure is the difference of two runs, one of which
# does more steps, divided by these.
set -euo pipefail
# shellcheck source=tests/lab/lab.sh
source "$(dirname "${BASH_SOURCE[0]}")/lab.sh"

few=2
many=8
hosts=2
strategies=ddp,zero1,zero2,zero3,fsdp
mtus=9000
frames=wire
prefix=
arguments=("$@")
while [[ ${1-} == --* && $# -ge 2 ]]; do
  case $1 in
    --hosts) hosts=$2 ;;
    --strategy) strategies=$2 ;;
    --mtu) mtus=$2 ;;
    --frames) frames=$2 ;;
    --out) prefix=$2 ;;
    *) break ;;
  esac
  shift 2
done
if [[ $# -eq 0 || $1 == --* ]]; then lab_usage; fi
lab_need mpirun.openmpi python3
lab_enter "${arguments[@]}"
mkdir /run/lab
most_hosts=$(tr ',' '\n' <<<"$hosts" | sort -n | tail -1)
lab_up "$most_hosts"
all_hosts=("${lab_hosts[@]}")

counters() { # one line per host: sent, received
  local host
  for host in "${lab_hosts[@]}"; do
    echo "$host $(lab_counter "$host" tx_bytes) $(lab_counter "$host" rx_bytes)"
  done
}

for mtu in ${mtus//,/ }; do
  lab_mtu "$mtu"
  for kind in ${frames//,/ }; do
    lab_frames "$kind"
    for world in ${hosts//,/ }; do
      lab_hosts=("${all_hosts[@]:0:world}")
      for strategy in ${strategies//,/ }; do
        for steps in "$few" "$many"; do
          name=/run/lab/$mtu.$kind.$world.$strategy.$steps
          counters >"$name.before"
          lab_mpirun 1 "$@" --strategy "$strategy" --steps "$steps" --warmup 1 --quiet \
            --out "$name.json" >/dev/null
          counters >"$name.after"
        done
      done
    done
    lab_hosts=("${all_hosts[@]}")
  done
done
python3 -B "$lab_folder/bytes.py" /run/lab "$few" "$many" "$prefix" tests/lab/bytes.sh "${arguments[@]}"
