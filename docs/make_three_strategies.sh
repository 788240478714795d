#!/usr/bin/env bash
# Copies the hook bodies of the strategies into docs/three-strategies.md, between the lines
#   <!-- hooks:FILE -->  and  <!-- /hooks -->
# FILE's own part is what stands between `// [hooks]` and `// [/hooks]`.
#   docs/make_three_strategies.sh            rewrites the page
#   docs/make_three_strategies.sh --check    changes nothing; 1 when the page is stale
# Either way it ends with 1 when a block is missing, empty or longer than 60 lines.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
page=$root/docs/three-strategies.md
most_lines=60

die() {
  printf 'make_three_strategies: %s\n' "$*" >&2
  exit 1
}

[[ $# == 0 || ($# == 1 && $1 == --check) ]] || die "usage: $0 [--check]"

made=$(mktemp)
trap 'rm -f "$made"' EXIT
awk -v root="$root" -v most="$most_lines" '
  function fail(text) {
    print "make_three_strategies: " text > "/dev/stderr"
    failed = 1
    exit 1
  }
  function copy(file,   path, line, inside, closed, lines) {
    path = root "/" file
    while ((status = (getline line < path)) > 0) {
      if (line == "// [/hooks]" && inside) closed = 1
      if (line == "// [/hooks]") inside = 0
      if (inside) {
        if (line != "" || lines > 0) {
          print line
          ++lines
        }
      }
      if (line == "// [hooks]") inside = 1
    }
    if (status < 0) fail("cannot read " file)
    close(path)
    if (!closed || lines == 0) fail(file " has nothing between // [hooks] and // [/hooks]")
    if (lines > most) fail(file ": " lines " lines of hooks, more than " most)
  }
  /^<!-- hooks:.* -->$/ {
    if (skipping) fail("<!-- /hooks --> is missing before " $0)
    print
    file = $2
    sub(/^hooks:/, "", file)
    print "```cpp"
    copy(file)
    print "```"
    skipping = 1
    ++blocks
    next
  }
  /^<!-- \/hooks -->$/ { skipping = 0 }
  !skipping { print }
  END {
    if (failed) exit 1
    if (skipping) fail("the last <!-- /hooks --> is missing")
    if (blocks == 0) fail("the page has no <!-- hooks:FILE --> lines")
  }
' "$page" >"$made" || exit 1

if [[ ${1-} == --check ]]; then
  cmp -s "$made" "$page" || die "docs/three-strategies.md is stale: run docs/make_three_strategies.sh"
elif ! cmp -s "$made" "$page"; then
  cat "$made" >"$page"
fi
