#!/usr/bin/env bash
# Fetches the NCCL that versions.env names (0.22 GB) and keeps its header and library.
#   bash cmake/fetch_nccl.sh [FOLDER]     default build/nccl; does nothing if it is there already
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:-$root/build/nccl}
# shellcheck source=versions.env
source "$root/versions.env"

if [[ -e $folder/.complete && $(<"$folder/.complete") == "$SHARDBENCH_NCCL_PACKAGE" ]]; then
  exit 0
fi
python=/usr/bin/python3
"$python" -c 'import venv, ensurepip' 2>/dev/null || python=python3
echo "fetching $SHARDBENCH_NCCL_PACKAGE (0.22 GB) to $folder"
partial=$folder.partial
rm -rf "$folder" "$partial"
mkdir -p "$partial"
trap 'rm -rf "$partial"' EXIT
"$python" -m venv "$partial/venv"
"$partial/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-compile \
  --target "$partial/packages" "$SHARDBENCH_NCCL_PACKAGE"
mv "$partial/packages/nvidia/nccl" "$folder"
echo "$SHARDBENCH_NCCL_PACKAGE" >"$folder/.complete"
