#!/usr/bin/env bash
# Puts the screen of results/default.txt into README.md, between the lines
#   <!-- screen:begin -->  and  <!-- screen:end -->
#   docs/make_readme_screen.sh            rewrites README.md
#   docs/make_readme_screen.sh --check    changes nothing; 1 when README.md is stale
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
page=$root/README.md
screen=$root/results/default.txt

die() {
  printf 'make_readme_screen: %s\n' "$*" >&2
  exit 1
}

[[ $# == 0 || ($# == 1 && $1 == --check) ]] || die "usage: $0 [--check]"
[[ -s $screen ]] || die "results/default.txt is missing or empty: run results/record.sh"
for mark in begin end; do
  grep -q "^<!-- screen:$mark -->$" "$page" || die "README.md lacks <!-- screen:$mark -->"
done

made=$(mktemp)
trap 'rm -f "$made"' EXIT
awk -v screen="$screen" '
  /^<!-- screen:begin -->$/ {
    print
    print "```"
    while ((getline line < screen) > 0) print line
    print "```"
    skipping = 1
    next
  }
  /^<!-- screen:end -->$/ { skipping = 0 }
  !skipping { print }
' "$page" >"$made"

if [[ ${1-} == --check ]]; then
  cmp -s "$made" "$page" || die "the screen in README.md is stale: run docs/make_readme_screen.sh"
elif ! cmp -s "$made" "$page"; then
  cat "$made" >"$page"
fi
