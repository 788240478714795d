#!/usr/bin/env bash
# Ours beside PyTorch's DDP and FSDP2 on the same work, interleaved round robin; prints one table.
#   bash bench/peers/compare_peers.sh --result results/FILE.json [--rounds 3] [--steps 10] ...
# --help lists all options. Builds the program and fetches PyTorch (bench/peers/setup.sh) first.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
case " $* " in
  *" --help "* | *" -h "*) exec python3 "$root/bench/peers/compare_peers.py" --help ;;
esac
"$root/shardbench" build
bash "$root/bench/peers/setup.sh"
exec "$root/build/peers-venv/bin/python" "$root/bench/peers/compare_peers.py" "$@"
