#!/usr/bin/env bash
# Runs every command whose result this folder keeps and writes, for each, NAME.json (all figures,
# machine, versions and the command itself) and NAME.txt (the printed screen), and NAME.md, the same
# table as Markdown, made from the JSON.
#   results/record.sh FOLDER [NAME...]      all of them, or only those named
#   results/record.sh --list [all]          the names and their commands; all: those with --peers too
# On a quiet machine: the times are part of what is written. SHARDBENCH names another program than
# ./shardbench; TRAIN_STEPS the steps of the training runs (default 450), PEER_STEPS those
# beside other frameworks (default 6).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
program=${SHARDBENCH:-$root/shardbench}
few=(--steps 4) # where bytes are the point, not times
gpt2=(--model gpt2 --untied --world 2 --batch 1 --seq 128)
# Beside other frameworks (docs/peers.md).
lean_units=(--units size:5M --sparse-embedding) # embedding and head are units of their own
fsdp2="fsdp2,fsdp2-blocks"
peers=(--strategy "ddp,zero1,zero3,fsdp" "${lean_units[@]}" --peers "ddp,zero-optimizer,ds-zero3,$fsdp2"
  --threads 1 --limit --table peers)
peers_staged=(--strategy "ddp,zero1" "${lean_units[@]}" --collectives staged --peers "ddp,zero-optimizer"
  --threads 1 --repetitions 2 --limit --table peers)
peers_bf16=(--strategy fsdp --dtype bf16 "${lean_units[@]}" --peers "$fsdp2"
  --threads 1 --repetitions 2 --limit --table peers)
peers_lean=(--strategy fsdp --split-head 8 --optimizer-in-backward --collectives in-place --peers fsdp2
  --threads 1 --repetitions 2 --limit --table peers)
five=(--strategy "ddp,zero1,zero2,zero3,fsdp")
links=(--batch 1 --steps 4 --link "none,10Gbit,20us,4Gbit,20us,1Gbit,20us,400Mbit,20us")
sweep=block,class:Linear,size:200k,size:2M,tensor,whole

# The arguments of a name, one a line.
arguments_of() {
  case $1 in
    default) printf '%s\n' compare ;;
    memory) printf '%s\n' compare --table memory "${few[@]}" ;;
    traffic) printf '%s\n' compare --world 2,3 --table traffic "${few[@]}" ;;
    time) printf '%s\n' compare --table time ;;
    worlds) printf '%s\n' compare --world 1,2,3,4,8 --steps 2 --warmup 1 ;;
    stages) printf '%s\n' compare "${five[@]}" --repetitions 2 ;;
    stages-worlds) printf '%s\n' compare "${five[@]}" --world 1,2,4,8 --steps 4 --warmup 1 --table full ;;
    scaling) printf '%s\n' compare --strategy ddp,fsdp --world 1,2,4 --table scaling ;;
    scaling-strong) printf '%s\n' compare --strategy ddp,fsdp --world 1,2,4 --global-batch 8 --table scaling ;;
    gpt2-stages) printf '%s\n' compare --model gpt2 "${five[@]}" --batch 1 --steps 5 ;;
    gpt2-balance) printf '%s\n' compare --model gpt2 --strategy zero3,fsdp --world 2,4,8 --batch 1 \
      --steps 2 --warmup 1 --table full ;;
    gpt2-layout) printf '%s\n' layout --model gpt2 --world 2,4,8 --table summary ;;
    llama-nano) printf '%s\n' compare --model llama-nano "${five[@]}" ;;
    convnet) printf '%s\n' compare --model convnet "${five[@]}" ;;
    units-sweep) printf '%s\n' compare --strategy fsdp --units "$sweep" --table pareto ;;
    init-broadcast) printf '%s\n' compare "${five[@]}" --init broadcast --table memory "${few[@]}" ;;
    init-broadcast-tensor) printf '%s\n' compare "${five[@]}" --init broadcast-tensor --table memory "${few[@]}" ;;
    collectives) printf '%s\n' collectives -b 1M -e 128M -f 8 --world 2 ;;
    collectives-4) printf '%s\n' collectives -b 1M -e 128M -f 8 --world 4 ;;
    gpt2-untied) printf '%s\n' compare "${gpt2[@]}" ;;
    peers-128) printf '%s\n' compare "${gpt2[@]}" "${peers[@]}" --repetitions 2 --steps "${PEER_STEPS:-6}" ;;
    peers-512) printf '%s\n' compare "${gpt2[@]/%128/512}" "${peers[@]}" --steps "${PEER_STEPS:-6}" ;;
    peers-staged-128) printf '%s\n' compare "${gpt2[@]}" "${peers_staged[@]}" --steps "${PEER_STEPS:-6}" ;;
    peers-bf16-128) printf '%s\n' compare "${gpt2[@]}" "${peers_bf16[@]}" --steps "${PEER_STEPS:-6}" ;;
    peers-bf16-512) printf '%s\n' compare "${gpt2[@]/%128/512}" "${peers_bf16[@]}" --steps "${PEER_STEPS:-6}" ;;
    peers-lean-128) printf '%s\n' compare "${gpt2[@]}" "${peers_lean[@]}" --steps "${PEER_STEPS:-6}" ;;
    peers-lean-512) printf '%s\n' compare "${gpt2[@]/%128/512}" "${peers_lean[@]}" --steps "${PEER_STEPS:-6}" ;;
    peers-collectives) printf '%s\n' collectives -b 1M -e 128M -f 2 --world 2 --peers gloo,mpi ;;
    peers-collectives-4) printf '%s\n' collectives -b 1M -e 128M -f 8 --world 4 --peers gloo,mpi ;;
    link) printf '%s\n' compare --link 1Gbit,20us ;;
    link-sweep) printf '%s\n' compare --strategy ddp,zero3,fsdp "${links[@]}" --prefetch 0,1,2 --table time ;;
    link-sweep-kept) printf '%s\n' compare --strategy fsdp --reshard-after-forward false "${links[@]}" --table time ;;
    link-hosts) printf '%s\n' compare "${five[@]}" --world 4 --batch 1 --link 100Gbit,1us \
      --link-inter 1Gbit,20us --ranks-per-host 2 --table time ;;
    comm-thread) printf '%s\n' compare --link 1Gbit,20us --comm-thread --table time ;;
    units-block) printf '%s\n' compare --units block --table memory "${few[@]}" ;;
    units-tensor) printf '%s\n' compare --units tensor --table memory "${few[@]}" ;;
    units-whole) printf '%s\n' compare --units whole --table memory "${few[@]}" ;;
    reshard-auto) printf '%s\n' compare --reshard-after-forward auto --table memory "${few[@]}" ;;
    reshard-false) printf '%s\n' compare --reshard-after-forward false --table memory "${few[@]}" ;;
    accumulation) printf '%s\n' compare --grad-accum 4 "${few[@]}" ;;
    train-ddp | train-zero3 | train-fsdp)
      printf '%s\n' run --strategy "${1#train-}" --steps "${TRAIN_STEPS:-450}" \
        --lr-warmup 100 --max-norm 1 --log-every 50 ;;
    loss-fp32 | loss-bf16)
      printf '%s\n' run --strategy fsdp --steps 200 --lr-warmup 100 --max-norm 1 --log-every 20 --dtype "${1#loss-}" ;;
    *)
      printf 'record: no result is called %s: see results/record.sh --list\n' "$1" >&2
      return 2
      ;;
  esac
}
names=(default memory traffic time worlds stages stages-worlds scaling scaling-strong gpt2-untied
  gpt2-stages gpt2-balance gpt2-layout llama-nano convnet link link-sweep link-sweep-kept link-hosts
  comm-thread units-block units-tensor units-whole
  units-sweep reshard-auto reshard-false accumulation init-broadcast init-broadcast-tensor collectives
  collectives-4 train-ddp train-zero3 train-fsdp loss-fp32 loss-bf16)

# Need other frameworks, 5.5 GB, and are made when they are named only.
peer_names=(peers-128 peers-512 peers-staged-128 peers-bf16-128 peers-bf16-512 peers-lean-128
  peers-lean-512 peers-collectives peers-collectives-4)

# The value of --table among the arguments, or brief.
table_of() {
  local previous=
  for argument in "$@"; do
    [[ $previous != --table ]] || { echo "$argument"; return; }
    previous=$argument
  done
  echo brief
}

if [[ ${1-} == --list ]]; then
  [[ ${2-} != all ]] || names+=("${peer_names[@]}")
  for name in "${names[@]}"; do
    mapfile -t arguments < <(arguments_of "$name")
    printf '%-21s ./shardbench %s\n' "$name" "${arguments[*]}"
  done
  exit 0
fi
[[ $# -ge 1 && $1 != -* ]] || {
  printf 'usage: results/record.sh FOLDER [NAME...]   or   results/record.sh --list\n' >&2
  exit 2
}
folder=$1
shift
(($# == 0)) || names=("$@")
mkdir -p "$folder"
for name in "${names[@]}"; do arguments_of "$name" >/dev/null; done

failed=()
for name in "${names[@]}"; do
  mapfile -t arguments < <(arguments_of "$name")
  json=$folder/$name.json
  screen=$folder/$name.txt
  printf 'record: %-21s ./shardbench %s\n' "$name" "${arguments[*]}" >&2
  status=0
  "$program" "${arguments[@]}" --out "$json" >"$screen" || status=$?
  if ((status != 0)); then
    printf 'record: %s ended with exit code %d\n' "$name" "$status" >&2
    failed+=("$name")
  fi
  if ((status == 0)) && [[ ${arguments[0]} == compare ]]; then
    "$program" compare --from "$json" --format md --table "$(table_of "${arguments[@]}")" \
      >"$folder/$name.md" || failed+=("$name.md")
  fi
  # Where program and checkout lie says nothing about the result: paths become relative.
  for file in "$json" "$screen" "$folder/$name.md"; do
    [[ ! -e $file ]] || sed -i "s|$program|build/bin/shardbench|g; s|$root/||g" "$file"
  done
done
((${#failed[@]} == 0)) || {
  printf 'record: failed: %s\n' "${failed[*]}" >&2
  exit 1
}
