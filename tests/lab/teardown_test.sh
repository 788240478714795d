#!/usr/bin/env bash
# Whatever ends a lab, nothing of it is left: neither process nor namespace nor interface.
set -euo pipefail
# shellcheck source=tests/lab/lab.sh
source "$(dirname "${BASH_SOURCE[0]}")/lab.sh"

if [[ ${1-} == lab ]]; then # the lab to end: one of its hosts runs a command for long
  marker=$2 ending=$3
  lab_enter "$@"
  lab_up 2
  lab_rate 1gbit
  "$lab_folder/agent.sh" h2 "sleep $marker" &
  until pgrep -fx "sleep $marker" >/dev/null; do sleep 0.05; done
  echo up >"$ending"
  [[ $ending != *.ends ]] || exit 5
  wait
  exit 0
fi

lab_need unshare setpriv ip tc pgrep
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
state() { ip netns list; ip -br link | cut -d' ' -f1; }
state >"$work/before"

check() { # NAME SIGNAL EXPECTED-EXIT-CODE
  local name=$1 signal=$2 expected=$3 status=0 lab
  local marker=$((7000000 + $$)).${RANDOM}
  bash "$0" lab "$marker" "$work/$name" >"$work/out" &
  lab=$!
  until [[ -e $work/$name ]] || ! kill -0 "$lab" 2>/dev/null; do sleep 0.05; done
  [[ $signal == none ]] || kill -"$signal" "$lab"
  wait "$lab" 2>/dev/null || status=$?
  if [[ $status == 77 ]]; then
    cat "$work/out"
    exit 77
  fi
  [[ $status == "$expected" ]] || { echo "$name: exit code $status, not $expected"; exit 1; }
  # The kernel ends the processes inside, which takes it a moment.
  for ((i = 0; i < 200; ++i)); do
    pgrep -f "sleep $marker" >/dev/null || break
    sleep 0.05
  done
  ! pgrep -fa "$marker" || { echo "$name: a process is left"; exit 1; }
  state | diff "$work/before" - || { echo "$name: a namespace or an interface is left"; exit 1; }
  echo "$name: nothing is left"
}
check lab.ends none 5
check lab.terminated TERM 143
check lab.killed KILL 137
