#!/usr/bin/env bash
# srun starts ranks like mpirun does: a Slurm of one node, in namespaces of its own.
#   srun_test.sh PROGRAM
# Skipped by name where Slurm is not installed (slurmctld, slurmd, slurm-client, its basic plug-ins).
set -euo pipefail
# shellcheck source=tests/lab/lab.sh
source "$(dirname "${BASH_SOURCE[0]}")/lab.sh"
(($# == 1)) || lab_usage
lab_need slurmctld slurmd srun sinfo python3
lab_enter "$@"

program=$1
work=$(mktemp -d)
ip link set lo up
ip link add node type bridge # Slurm resolves addresses only where one is not the loopback's
ip addr add 10.77.0.1/24 dev node
ip link set node up
host=$(hostname)
mkdir "$work/state" "$work/spool"
cat >"$work/slurm.conf" <<CONF
ClusterName=lab
SlurmctldHost=$host(10.77.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=10.77.0.1 CPUs=8
PartitionName=all Nodes=$host Default=YES
CONF
export SLURM_CONF=$work/slurm.conf
slurmctld -D >/dev/null 2>&1 &
slurmd -D >/dev/null 2>&1 &
for ((i = 0; i < 100; ++i)); do
  ! timeout 5 sinfo -h -o %T 2>/dev/null | grep -q idle || break
  sleep 0.2
done
timeout 5 sinfo -h -o %T | grep -q idle || lab_skip "Slurm does not start here"

small=(--model mlp --data synthetic --autotune fixed --warmup 1 --steps 2)
field() { python3 -c 'import json, sys
at = json.load(open(sys.argv[1]))
for key in sys.argv[2].split("."): at = at[int(key) if key.isdigit() else key]
print(at)' "$work/$1.json" "$2"; }
"$program" compare "${small[@]}" --world 2 --strategy zero3 --out "$work/forked.json" >/dev/null 2>&1

for plugin in pmix pmi2; do
  srun --mpi=list 2>&1 | grep -q "$plugin" || continue
  timeout 120 srun --mpi="$plugin" -n 2 "$program" compare "${small[@]}" --strategy zero3 \
    --out "$work/$plugin.json" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
  for value in okay results.0.world_size results.0.parameter_hash; do
    [[ $(field "$plugin" "$value") == $(field forked "$value") ]] ||
      { echo "srun --mpi=$plugin: $value differs"; exit 1; }
  done
  [[ $(field "$plugin" results.0.world_size) == 2 ]]
  echo "srun --mpi=$plugin: the same result as with ranks of its own"

  # A rank that is killed ends the job, and is named.
  status=0
  timeout 120 srun --mpi="$plugin" -n 2 "$program" compare "${small[@]}" --strategy zero3 \
    --inject kill@1,2,backward >"$work/out" 2>&1 || status=$?
  if [[ $status == 0 || $status == 124 ]] || ! grep -q 'rank 1' "$work/out"; then
    echo "srun --mpi=$plugin, rank 1 killed: exit code $status"
    cat "$work/out"
    exit 1
  fi
  echo "srun --mpi=$plugin: a killed rank ends the job"
done
