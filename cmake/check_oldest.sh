#!/usr/bin/env bash
# Compiles the libraries against the oldest supported LibTorch (versions.env): no linking of
# programs, no tests. Its virtual environment and objects lie in build/oldest.
#   bash cmake/check_oldest.sh [further CMake options]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$root/build/oldest
# shellcheck source=versions.env
source "$root/versions.env"
read -ra runtime <<<"$SHARDBENCH_CUDA_RUNTIME"

venv=$folder/venv-$SHARDBENCH_TORCH_OLDEST
if [[ ! -e $venv ]]; then
  echo "fetching LibTorch $SHARDBENCH_TORCH_OLDEST (0.53 GB, about 1 min)"
  rm -rf "$folder"
  mkdir -p "$folder"
  python=/usr/bin/python3
  "$python" -c 'import venv, ensurepip' 2>/dev/null || python=python3
  "$python" -m venv "$folder/partial"
  "$folder/partial/bin/python" -m pip install -q --disable-pip-version-check --no-deps \
    "torch==$SHARDBENCH_TORCH_OLDEST" "${runtime[@]}"
  mv "$folder/partial" "$venv"
fi

torch=$(echo "$venv"/lib/python3*/site-packages/torch)
# Unoptimised: whether it compiles is all that is asked.
cmake -G Ninja -S "$root" -B "$folder/objects" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DCMAKE_PREFIX_PATH="$torch" -DSHARDBENCH_TESTS=OFF "$@"

# Every library of the project (static archives), whatever rooms there are, but those of bench/,
# which include nothing of LibTorch.
mapfile -t libraries < <(ninja -C "$folder/objects" -t targets all |
  sed -n 's|^\([^:]*\.a\): CXX_STATIC_LIBRARY_LINKER.*|\1|p' | grep -v '^bench/')
((${#libraries[@]} > 0)) || {
  echo "check_oldest: no library found in $folder/objects" >&2
  exit 1
}
ninja -C "$folder/objects" -j "$(nproc)" "${libraries[@]}"
echo "LibTorch $SHARDBENCH_TORCH_OLDEST: ${#libraries[@]} libraries compile"
