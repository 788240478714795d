#!/usr/bin/env bash
# mpirun.sh IMPLEMENTATION RANKS PROGRAM [ARGUMENT...]: runs PROGRAM under the mpirun of this
# implementation on this machine. Exit code 77 (a skip for ctest): it has none.
set -euo pipefail

implementation=$1
ranks=$2
shift 2

# The first mpirun that belongs to it: distributions add the name where they install several.
find_mpirun() {
  local candidate version
  for candidate in "mpirun.$implementation" "mpiexec.$implementation" mpirun mpiexec; do
    command -v "$candidate" >/dev/null || continue
    version=$("$candidate" --version 2>&1 || true)
    case $implementation in
      openmpi) [[ $version == *"Open MPI"* || $version == *OpenRTE* ]] || continue ;;
      mpich) [[ $version == *HYDRA* ]] || continue ;;
    esac
    echo "$candidate"
    return
  done
}

mpirun=$(find_mpirun)
if [[ -z $mpirun ]]; then
  echo "no mpirun of $implementation on this machine: skipped"
  exit 77
fi
flags=(-n "$ranks")
if [[ $implementation == openmpi ]]; then
  flags+=(--oversubscribe)
  [[ $(id -u) != 0 ]] || flags+=(--allow-run-as-root)
fi
exec "$mpirun" "${flags[@]}" "$@"
