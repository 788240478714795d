#!/usr/bin/env bash
# How often `shardbench diff` is right on this machine: the same program against itself must show no
# difference (A/A), a sleep planted in every step must show as worse. Prints a Markdown report;
# every verdict goes to OUT/verdicts.csv. Exit code 0 when both rates are reached, else 1.
#
#   bench/diff/validate.sh [--pairs 100] [--turns 8] [--repetitions 1] [--steps 15] [--slow 5]
#                          [--strategy fsdp] [--world 2] [--program FILE] [--out FOLDER]
#
# One comparison takes `turns` files per side, measured in turns, in random order within a turn:
# A (old), C (the same again) and B (slower). diff A C is the A/A case, diff C B the slower one.
# --turns 1 --repetitions 8 compares one file of eight repetitions with another instead.
set -euo pipefail

pairs=100 turns=8 repetitions=1 steps=15 slow=5 strategy=fsdp world=2
program=build/bin/shardbench out=""
model=(--model gpt2-nano --layers 2 --heads 4 --hidden 128 --vocab 256 --context 64 --seq 64
       --batch 4 --data synthetic --autotune fixed)
while (($# > 0)); do
  case $1 in
    --pairs) pairs=$2 ;;
    --turns) turns=$2 ;;
    --repetitions) repetitions=$2 ;;
    --steps) steps=$2 ;;
    --slow) slow=$2 ;;
    --strategy) strategy=$2 ;;
    --world) world=$2 ;;
    --program) program=$2 ;;
    --out) out=$2 ;;
    *) echo "validate.sh: unknown flag $1 (see the head of this file)" >&2; exit 2 ;;
  esac
  (($# > 1)) || { echo "validate.sh: $1 needs a value" >&2; exit 2; }
  shift 2
done
[[ -x $program ]] || { echo "validate.sh: no program at $program: run ./shardbench build" >&2; exit 2; }
[[ -n $out ]] || out=$(mktemp -d)
mkdir -p "$out"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

# measure NAME [flags]: one result file. A single repetition needs no reference: `run` is quicker.
measure() {
  local name=$1
  shift
  local -a what=(run --steps $((steps + 2)) --log-every 1000000)
  ((repetitions == 1)) || what=(compare --warmup 2 --steps "$steps" --repetitions "$repetitions")
  "$program" "${what[@]}" --strategy "$strategy" --world "$world" "${model[@]}" --quiet \
    --out "$runs/$name.json" "$@" > "$runs/log" || { cat "$runs/log" >&2; exit 1; }
}

# files LETTER: the files of one side, as diff takes them.
files() {
  local list="" turn
  for ((turn = 1; turn <= turns; ++turn)); do list+="${list:+,}$runs/$1$turn.json"; done
  echo "$list"
}

# judge PAIR EXPERIMENT OLD NEW: appends "pair,experiment,verdict,change,low,high,load" to the csv.
judge() {
  local line
  line=$("$program" diff "$(files "$3")" "$(files "$4")" --metric step_time --format csv --quiet |
         tail -n 1)
  # row,metric,unit,old,new,change,interval,low,high,verdict,status
  awk -F, -v pair="$1" -v what="$2" -v load="$(cut -d' ' -f1 /proc/loadavg)" \
    '{gsub(/"/, "", $10); print pair "," what "," $10 "," $6 "," $8 "," $9 "," load}' \
    <<< "$line" >> "$out/verdicts.csv"
}

count() { awk -F, -v what="$1" -v verdict="$2" '$2 == what && $3 == verdict' "$out/verdicts.csv" | wc -l; }

echo "pair,experiment,verdict,change_percent,low_percent,high_percent,load" > "$out/verdicts.csv"
for ((pair = 1; pair <= pairs; ++pair)); do
  for ((turn = 1; turn <= turns; ++turn)); do
    for side in $(shuf -e a c b); do
      if [[ $side == b ]]; then
        measure "$side$turn" --inject "slow:$slow@0,0,forward"
      else
        measure "$side$turn"
      fi
    done
  done
  judge "$pair" same a c
  judge "$pair" slower c b
  [[ ! -t 2 ]] || printf '\r%d of %d' "$pair" "$pairs" >&2
done
[[ ! -t 2 ]] || printf '\r\033[K' >&2

row() {
  printf '| %s | %d | %d | %d | %d | %d |\n' "$2" "$pairs" "$(count "$1" "no difference")" \
    "$(count "$1" worse)" "$(count "$1" better)" "$(count "$1" "too few")"
}
summary() { # EXPERIMENT: median change
  awk -F, -v what="$1" '$2 == what {print $4}' "$out/verdicts.csv" | sort -g |
    awk '{v[NR] = $1} END {printf "%.1f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'
}
echo "# How often diff is right"
echo
echo "$("$program" --version); $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores;" \
     "load $(awk -F, 'NR > 1 {s += $7; n++} END {printf "%.1f on average", s / n}' "$out/verdicts.csv")" \
     "(these runs included); $(date -u +%Y-%m-%d)"
echo
echo "\`bench/diff/validate.sh --pairs $pairs --turns $turns --repetitions $repetitions --steps $steps" \
     "--slow $slow --strategy $strategy --world $world\`"
echo
echo "| new against old | comparisons | no difference | worse | better | too few |"
echo "|---|---:|---:|---:|---:|---:|"
row same "the same again"
row slower "$slow % slower (a sleep in every step)"
echo
echo "Median change found: $(summary same) % and $(summary slower) %."
right=$(count same "no difference")
found=$(count slower worse)
((right * 100 >= 90 * pairs && found * 100 >= 95 * pairs))
