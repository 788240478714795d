#!/usr/bin/env bash
# Other frameworks for `compare --peers` and `collectives --peers`: a virtual environment of its own
# with the whole torch and every CUDA wheel it asks for, which ./shardbench itself does not need,
# and DeepSpeed built from its source package without its CUDA operators.
#   bash bench/peers/setup.sh [torch|deepspeed]...     default: torch. deepspeed brings torch too
#   bash bench/peers/setup.sh --missing torch deepspeed    only prints which of them are not there
# SHARDBENCH_PEERS_VENV names another folder than build/peers-venv, SHARDBENCH_PYTHON the Python that
# makes it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=${SHARDBENCH_PEERS_VENV:-$root/build/peers-venv}
# shellcheck source=versions.env
source "$root/versions.env"

say() { printf 'peers: %s\n' "$*" >&2; }
# What .complete-NAME says of a whole installation.
stamp_of() {
  case $1 in
    torch) echo "torch $SHARDBENCH_TORCH_VERSION" ;;
    deepspeed) echo "deepspeed $SHARDBENCH_DEEPSPEED_VERSION, torch $SHARDBENCH_TORCH_VERSION" ;;
    *)
      say "$1: choose from torch, deepspeed"
      exit 2
      ;;
  esac
}
is_there() { [[ -e $venv/.complete-$1 && $(<"$venv/.complete-$1") == "$(stamp_of "$1")" ]]; }
pip_install() { "$venv/bin/python" -m pip install --disable-pip-version-check "$@" >&2; }

install_torch() {
  say "fetching torch $SHARDBENCH_TORCH_VERSION with its CUDA wheels into $venv:" \
    "5.4 GB on disk, 1 to 2 min where disk and network are quick"
  local python=${SHARDBENCH_PYTHON:-/usr/bin/python3}
  "$python" -c 'import venv, ensurepip' 2>/dev/null || python=python3
  rm -rf "$venv"
  mkdir -p "$(dirname "$venv")"
  "$python" -m venv "$venv" >&2
  pip_install "torch==$SHARDBENCH_TORCH_VERSION" numpy
}

install_deepspeed() {
  say "fetching deepspeed $SHARDBENCH_DEEPSPEED_VERSION into $venv: about 50 MB, 1 to 2 min"
  DS_BUILD_OPS=0 DS_ACCELERATOR=cpu pip_install "deepspeed==$SHARDBENCH_DEEPSPEED_VERSION"
  # The one operator that it compiles at its first use on CPUs, so that no run has to wait for it.
  say "building deepspeed's shared-memory operator: about 1 min"
  PATH=$venv/bin:$PATH CUDA_VISIBLE_DEVICES='' DS_ACCELERATOR=cpu \
    TORCH_EXTENSIONS_DIR=$venv/torch_extensions "$venv/bin/python" -c '
from deepspeed.accelerator import get_accelerator
get_accelerator().create_op_builder("ShareMemCommBuilder").load()' >&2
}

only_missing=no
if [[ ${1-} == --missing ]]; then
  only_missing=yes
  shift
fi
(($# > 0)) || set -- torch
wanted=()
for name in "$@"; do
  stamp_of "$name" >/dev/null
  [[ $name == torch || " $* " == *" torch "* ]] || wanted+=(torch)
  wanted+=("$name")
done
for name in "${wanted[@]}"; do
  if is_there "$name"; then continue; fi
  if [[ $only_missing == yes ]]; then
    echo "$name"
    continue
  fi
  "install_$name"
  stamp_of "$name" >"$venv/.complete-$name"
done
