#!/usr/bin/env bash
# One case of the entry script's tests:  entry_test.sh REPOSITORY CASE
# The script runs in a folder of its own, with only the stand-ins of stubs.sh on PATH.
set -euo pipefail
repository=$1
case_name=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
log=$work/log
# shellcheck source=tests/cli/entry/stubs.sh
source "$repository/tests/cli/entry/stubs.sh"
make_tree "$repository" "$work"

fail() {
  printf 'FAILED: %s\n--- stdout\n%s\n--- stderr\n%s\n--- log\n%s\n' "$*" \
    "$(cat "$work/out")" "$(cat "$work/err")" "$(cat "$log")"
  exit 1
}
# Runs the script from another folder; leaves $status, $work/out and $work/err.
run() {
  status=0
  (cd "$work/elsewhere" && exec env "${environment[@]}" "$tree/shardbench" "$@") \
    >"$work/out" 2>"$work/err" || status=$?
}
expect_status() { [[ $status == "$1" ]] || fail "exit status $status, expected $1"; }
expect_out() { [[ $(cat "$work/out") == "$1" ]] || fail "stdout is not: $1"; }
expect_err() { grep -qF -- "$1" "$work/err" || fail "stderr lacks: $1"; }
expect_calls() { # NUMBER PREFIX of logged calls
  local found
  found=$(grep -c "^$2" "$log" || true)
  [[ $found == "$1" ]] || fail "$found calls of '$2', expected $1"
}
wait_for_pip() {
  local i
  for ((i = 0; i < 200; ++i)); do
    ! grep -q "^pip install" "$log" || return 0
    sleep 0.05
  done
  fail "pip was not called"
}
# The script's own messages: one line says what is wrong.
expect_one_message() {
  [[ $(grep -c '^shardbench: ' "$work/err") == 1 ]] || fail "more than one message"
}

case_first_run() {
  run compare "two words" '*' --x=
  expect_status 7 # the program's own
  expect_out "args: [compare] [two words] [*] [--x=] in $work/elsewhere data $tree/build/data"
  expect_err "LibTorch 9.9.9, 0.53 GB"
  expect_err "training text, 5 MB"
  expect_calls 1 "pip install"
  expect_calls 1 "cmake"
  expect_calls 1 "ninja build shardbench"
  [[ $(cat "$tree/build/data/shakespeare.txt") == "$corpus_text" ]] || fail "wrong text"
  grep -q "$tree/build/venv/bin" "$tree/build/venv/bin/pip" || fail "venv names its old folder"
  [[ ! -e $tree/build/partial ]] || fail "left over: build/partial"
}

case_quick_second_run() {
  run compare
  : >"$log"
  run compare again
  expect_status 7
  [[ ! -s $work/err ]] || fail "said something though nothing was to do"
  expect_calls 0 "pip"
  expect_calls 0 "cmake"
  expect_calls 0 "ninja build"
}

case_rebuilds_when_stale() {
  run compare
  : >"$log"
  touch "$tree/stale"
  run compare
  expect_status 7
  expect_calls 1 "ninja build shardbench"
  expect_calls 0 "cmake"
}

case_without_root() {
  rm "$work/bin/cmake" "$work/bin/ninja" "$work/bin/mold"
  environment+=(FAKE_UID=1000)
  run compare
  expect_status 2
  expect_one_message
  expect_err "as root run: apt-get update && apt-get install -y cmake ninja-build mold"
  expect_calls 0 "apt-get"
  expect_calls 0 "pip"
}

case_apt_as_root() {
  mv "$work/bin/cmake" "$work/later"
  run compare
  expect_status 7
  # The first try without package lists fails; the lists are fetched, then it works.
  expect_calls 1 "apt-get update"
  expect_calls 2 "apt-get install .* cmake"
}

case_no_install() {
  rm "$work/bin/ninja"
  run compare --no-install
  expect_status 2
  expect_one_message
  expect_err "the packages ninja-build"
  expect_err "LibTorch 9.9.9"
  expect_err "the training text"
  [[ ! -s $log ]] || fail "called something"
}

case_no_install_complete() {
  run setup
  expect_status 0
  expect_calls 0 "ninja build"
  run --no-install compare x
  expect_status 7
  expect_out "args: [compare] [x] in $work/elsewhere data $tree/build/data"
}

case_plain_libtorch() {
  mkdir -p "$work/prefix/include/ATen" "$work/prefix/lib"
  touch "$work/prefix/include/ATen/ATen.h" "$work/prefix/lib/libtorch_cpu.so"
  environment+=(SHARDBENCH_DATA_DIR="$work/texts" SHARDBENCH_PYTHON=/none)
  run compare
  expect_status 7
  expect_out "args: [compare] in $work/elsewhere data $work/texts"
  expect_calls 0 "pip"
  [[ ! -e $tree/build/venv ]] || fail "made a virtual environment"
}

case_no_python() {
  mkdir -p "$work/prefix/include/ATen" "$work/prefix/lib"
  touch "$work/prefix/include/ATen/ATen.h" "$work/prefix/lib/libtorch_cpu.so"
  environment+=(SHARDBENCH_PYTHON=/none)
  run compare
  expect_status 7
  expect_err "no training text: give --data FILE or --data synthetic"
  run compare
  expect_status 7
  [[ ! -s $work/err ]] || fail "said it again"
}

case_failed_download() {
  run_with=("${environment[@]}")
  environment+=(FAIL_PIP=1)
  run compare
  expect_status 2
  expect_err "pip could not install torch==9.9.9"
  [[ ! -e $tree/build/venv ]] || fail "half an environment is left"
  environment=("${run_with[@]}")
  run compare
  expect_status 7
}

case_wrong_text() {
  environment+=(CORPUS_TEXT=other)
  run compare
  expect_status 2
  expect_err "is not the expected one"
  [[ ! -e $tree/build/data/shakespeare.txt ]] || fail "kept a wrong text"
}

case_interrupted() {
  # Killed with all its children in the middle of pip.
  (cd "$work/elsewhere" && exec setsid env "${environment[@]}" SLOW_PIP=30 "$tree/shardbench" x) \
    >"$work/out" 2>"$work/err" &
  local pid=$!
  wait_for_pip
  kill -KILL -- "-$pid"
  wait "$pid" 2>/dev/null || true
  [[ ! -e $tree/build/venv ]] || fail "half an environment is left"
  run compare
  expect_status 7
  expect_calls 2 "pip install"
  [[ ! -e $tree/build/partial ]] || fail "left over: build/partial"
}

case_two_at_once() {
  environment+=(SLOW_PIP=1)
  (cd "$work/elsewhere" && exec env "${environment[@]}" "$tree/shardbench" first) \
    >"$work/out1" 2>"$work/err1" &
  local pid=$! first=0
  wait_for_pip
  run second
  wait "$pid" || first=$?
  expect_status 7
  [[ $first == 7 ]] || fail "the first ended with $first"
  expect_err "another set-up or build is running"
  expect_calls 1 "pip install"
  expect_calls 1 "ninja build"
}

case_changed_pin() {
  run compare
  sed -i s/9.9.9/9.9.10/ "$tree/versions.env"
  run compare
  expect_status 7
  expect_calls 1 "pip install .*torch==9.9.10"
  expect_calls 2 "cmake"
}

case_test_command() {
  run test -R "two words"
  expect_status 0
  expect_calls 1 "ninja build all"
  expect_calls 1 "ctest --test-dir $tree/build .*-R two words"
  [[ $(tail -n 1 "$work/out") == "100% tests passed, 0 tests failed out of 1" ]] ||
    fail "ctest's summary does not come last"
}

case_failed_build() {
  environment+=(FAIL_NINJA=1)
  run compare
  expect_status 2
  expect_err "the build failed"
}

case_help_before_build() {
  run --help
  expect_status 0
  grep -q "shardbench compare" "$work/out" || fail "no help"
  [[ ! -s $log && ! -e $tree/build ]] || fail "help set something up"
}

case_read_only() {
  touch "$tree/build" # a file in its place: not even root can write there
  run compare
  expect_status 2
  expect_err "cannot write to $tree/build"
}

case_peers() {
  run compare --peers torch,ds-zero3
  expect_status 7
  expect_calls 1 "program compare --peers torch,ds-zero3 --dry-run --quiet"
  expect_err "--peers needs torch deepspeed: up to 5.5 GB"
  expect_calls 1 "pip install .*torch==9.9.9 numpy"
  expect_calls 1 "pip install .*deepspeed==7.7.7"
  : >"$log"
  run compare --peers=fsdp2
  expect_status 7
  expect_out "args: [compare] [--peers=fsdp2] in $work/elsewhere data $tree/build/data"
  [[ ! -s $work/err ]] || fail "said something though nothing was to do"
  run compare --peers deepspeed --dry-run
  run compare
  run collectives --peers mpi
  expect_calls 0 "pip"
}

case_peers_refused() {
  run setup
  run build
  : >"$log"
  environment+=(DRY_STATUS=2)
  run compare --peers nobody
  expect_status 2
  expect_calls 0 "pip"
}

case_peers_without_install() {
  run compare
  : >"$log"
  run compare --peers deepspeed --no-install
  expect_status 2
  expect_one_message
  expect_err "missing: torch deepspeed for --peers"
  expect_calls 0 "pip"
  environment+=(SHARDBENCH_PEERS_PYTHON=/some/python)
  run compare --peers deepspeed --no-install
  expect_status 7
}

case_peers_not_to_be_had() {
  run compare
  environment+=(FAIL_PIP=1)
  run compare --peers torch
  expect_status 7 # the program runs: rows say what is missing
  expect_err "not all of torch could be installed"
}

"case_$case_name"
