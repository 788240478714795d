#!/usr/bin/env bash
# Installs a finished build below a temporary folder, builds the examples outside the tree with it
# and runs them:  install_test.sh SOURCE BUILD LIBTORCH COMPILER
# Prints each finding and ends with 1 when there is one.
set -euo pipefail
source=$1 build=$2 torch=$3 compiler=$4
findings=0
finding() {
  printf '%s\n' "$*"
  findings=$((findings + 1))
}

work=$(mktemp -d)
# The list of installed files that CMake leaves in the build folder is that of the user's last call.
manifest=$build/install_manifest.txt
[[ ! -e $manifest ]] || mv "$manifest" "$work/install_manifest.txt"
tidy() {
  rm -f "$manifest"
  [[ ! -e $work/install_manifest.txt ]] || mv "$work/install_manifest.txt" "$manifest"
  rm -rf "$work"
}
trap tidy EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" ||
  { tail -n 5 "$work/install.log" && exit 1; }
package=$(dirname "$(find "$work/prefix" -name shardbenchConfig.cmake)")
headers=$work/prefix/include/shardbench

# Nothing of the build may show in what users' compilers get.
for word in "$source" "$build" "$torch" -Wall -Wextra -Werror -Wshadow -Wconversion -fsanitize \
  ccache mold pch; do
  ! grep -rnF -- "$word" "$package" || finding "the package files contain $word"
done
[[ -x $work/prefix/bin/shardbench ]] || finding "the program is not installed"
"$work/prefix/bin/shardbench" compare --help >"$work/help" || finding "the program does not run"

# Every header finds what it includes.
while IFS=: read -r file include; do
  [[ -e $headers/$include ]] || finding "${file#"$headers"/} includes $include, not installed"
done < <(grep -rnoE '^#include "[^"]+"' "$headers" | sed -E 's/:[0-9]+:#include "(.*)"/:\1/')

# configure NAME PREFIX_PATH [OPTION...]
configure() {
  cmake -S "$work/examples/$1" -B "$work/$1" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$2" "${@:3}" >"$work/configure.log" 2>&1
}
cp -r "$source/examples" "$work/examples"

# refused WHAT TEXT: a configuration that must fail, saying why.
refused() {
  tr -s '\n ' ' ' <"$work/configure.log" | grep -qF -- "$2" ||
    { finding "$1: no word of '$2'" && tail -n 20 "$work/configure.log"; }
}
fake=$work/fake/torch
mkdir -p "$fake/include/ATen" "$fake/include/torch/headeronly" "$fake/lib"
touch "$fake/include/ATen/ATen.h" "$fake/lib/libtorch_cpu.so" "$fake/lib/libc10.so"
fake_version() {
  printf '#define TORCH_VERSION_%s\n' "MAJOR $1" "MINOR $2" "PATCH $3" \
    >"$fake/include/torch/headeronly/version.h"
}
fake_version 2 5 1
! configure own_layer "$work/prefix;$fake" || finding "an old LibTorch is accepted"
refused "old LibTorch" "is too old:"
fake_version 2 99 0
! configure own_layer "$work/prefix;$fake" || finding "another LibTorch is accepted"
refused "another LibTorch" "name the same version in CMAKE_PREFIX_PATH"
! configure own_layer "$work/prefix" || finding "a package without LibTorch is accepted"
refused "no LibTorch" "LibTorch not found"

launcher=()
[[ -z $(command -v ccache) ]] || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
for example in train_builtin own_layer torch_nn; do
  configure "$example" "$work/prefix;$torch" "${launcher[@]}" ||
    { tail -n 20 "$work/configure.log" && finding "$example is not configured" && continue; }
  CCACHE_BASEDIR=$work cmake --build "$work/$example" >"$work/build.log" 2>&1 ||
    { tail -n 20 "$work/build.log" && finding "$example is not built" && continue; }

  # Loss falls; its last value has the same bits under all strategies.
  declare -A last=()
  for run in "ddp 2" "zero1 2" "zero2 2" "zero3 2" "fsdp 2" "single 1" "fsdp 1"; do
    read -r strategy ranks <<<"$run"
    "$work/$example/$example" "$strategy" "$ranks" >"$work/losses" 2>"$work/errors" ||
      { cat "$work/errors" && finding "$example $run failed" && continue; }
    last[$run]=$(awk '$1 == "step" { value = $4 } END { print value }' "$work/losses")
    awk '$1 == "step" { if (first == "") first = $4; last = $4 }
         END { exit !(first != "" && last < 0.9 * first) }' "$work/losses" ||
      { cat "$work/losses" && finding "$example $run: the loss does not fall"; }
  done
  for run in "zero1 2" "zero2 2" "zero3 2" "fsdp 2"; do
    [[ ${last[$run]-} == "${last[ddp 2]-none}" ]] ||
      finding "$example: loss ${last[$run]-none} under $run, ${last[ddp 2]-none} under ddp"
  done
  [[ ${last[fsdp 1]-} == "${last[single 1]-none}" ]] ||
    finding "$example: loss ${last[fsdp 1]-none} under fsdp, ${last[single 1]-none} under single"
  code=0
  "$work/$example/$example" nothing >"$work/losses" 2>"$work/errors" || code=$?
  if ((code != 2)) || ! grep -q "unknown strategy 'nothing'" "$work/errors"; then
    cat "$work/errors"
    finding "$example nothing: exit $code"
  fi
done
((findings == 0)) || exit 1
