#!/usr/bin/env bash
# PyTorch for the peers: a virtual environment of its own in build/peers-venv with the whole torch
# and every CUDA wheel it asks for (5.4 GB on disk, 1 to 2 min), which ./shardbench itself does
# not need.
#   bash bench/peers/setup.sh [FOLDER]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=${1:-$root/build/peers-venv}
# shellcheck source=versions.env
source "$root/versions.env"

stamp="torch $SHARDBENCH_TORCH_VERSION"
if [[ -e $venv/.complete && $(<"$venv/.complete") == "$stamp" ]]; then
  exit 0
fi
echo "peers: fetching torch $SHARDBENCH_TORCH_VERSION with its CUDA wheels into $venv:" \
  "5.4 GB on disk, 1 to 2 min" >&2
python=/usr/bin/python3
"$python" -c 'import venv, ensurepip' 2>/dev/null || python=python3
rm -rf "$venv"
mkdir -p "$(dirname "$venv")"
"$python" -m venv "$venv" >&2
"$venv/bin/python" -m pip install --disable-pip-version-check \
  "torch==$SHARDBENCH_TORCH_VERSION" numpy >&2
echo "$stamp" >"$venv/.complete"
