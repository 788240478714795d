#!/usr/bin/env bash
# Stands for the Python of the peers: fake_peer.sh SCRIPT WORK.json. FAKE_PEER says what it does,
# FAKE_LOSSES (separated by commas) what it says the losses were.
set -euo pipefail
work=$(<"$2")

say_steps() {
  local step
  for ((step = 1; step <= ${#losses[@]}; ++step)); do echo "step $step"; done
}
# The result of a run in which every rank has these losses and every step took 50 ms.
say_result() {
  local rank world times ranks=''
  world=$(sed -E 's/.*"world_size": ?([0-9]+).*/\1/' <<<"$work")
  times=$(printf ',%s' "${losses[@]/*/50000000}")
  for ((rank = 0; rank < world; ++rank)); do
    ranks+=",{\"rank\":$rank,\"pid\":1,\"step_ns\":[${times:1}],\"losses\":[$FAKE_LOSSES],"
    ranks+='"rss_start_bytes":1,"rss_peak_bytes":1073741824,"pss_bytes":536870912}'
  done
  echo "result {\"versions\":{\"torch\":\"fake\"},\"per_rank\":[${ranks:1}]}"
}
# Rows of collectives.py, one for each that is asked for.
say_rows() {
  local rows
  rows=$(grep -o '"op"' <<<"$work" | wc -l)
  echo "title a fake"
  for ((; rows > 0; --rows)); do echo "row {\"time_us\": 1000, \"nwrong\": ${1:-0}}"; done
}

IFS=, read -ra losses <<<"${FAKE_LOSSES-}"
case $FAKE_PEER in
  right)
    if [[ $1 == */collectives.py ]]; then
      say_rows
    else
      say_steps
      say_result
    fi
    ;;
  wrong)
    if [[ $1 == */collectives.py ]]; then
      say_rows 2
    else
      FAKE_LOSSES=${FAKE_LOSSES%,*},123
      say_steps
      say_result
    fi
    ;;
  crash)
    echo "step 1"
    echo "Traceback (most recent call last):" >&2
    echo "RuntimeError: planted" >&2
    exit 1
    ;;
  lacking)
    echo "ModuleNotFoundError: No module named 'torch'" >&2
    exit 1
    ;;
  killed) kill -9 $$ ;;
  hang)
    trap '' TERM INT
    sleep 1000 &
    setsid sleep 1000 &
    while :; do sleep 1; done
    ;;
  garbage)
    head -c 100000 /dev/urandom
    printf '\nstep x\nresult {"per_rank": [1, 2\n'
    ;;
  silent) ;;
esac
