#!/usr/bin/env bash
# One check of the pages:  docs_test.sh REPOSITORY CASE [ARGUMENT]
# Prints each finding and ends with 1 when there is one.
set -euo pipefail
root=$1
case_name=$2
argument=${3-}
findings=0

finding() {
  printf '%s\n' "$*"
  findings=$((findings + 1))
}

pages() { find "$root" -maxdepth 3 -name '*.md' -not -path "$root/build*" | sort; }

# A page without fenced blocks.
prose() { awk '/^ *```/ { fenced = !fenced; next } !fenced' "$1"; }

# The anchors that the headings of a page have, as GitHub makes them.
anchors() {
  prose "$1" | sed -n 's/^##* //p' | tr '[:upper:]' '[:lower:]' |
    sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

check_links() {
  local page link file anchor target
  while read -r page; do
    while read -r link; do
      [[ $link != *://* && $link != mailto:* ]] || continue
      file=${link%%#*}
      anchor=''
      [[ $link != *#* ]] || anchor=${link#*#}
      target=$page
      [[ -z $file ]] || target=$(dirname "$page")/$file
      if [[ ! -e $target ]]; then
        finding "${page#"$root"/}: $link leads nowhere"
      elif [[ -n $anchor ]] && ! anchors "$target" | grep -qxF -- "$anchor"; then
        finding "${page#"$root"/}: $link names no heading"
      fi
    done < <(prose "$page" | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\(//; s/\)$//')
  done < <(pages)
}

# Files that pages name in code marks must exist, from the root or from the page.
check_paths() {
  local page path
  # shellcheck disable=SC2016  # backticks are meant as they stand
  local pattern='`[a-z0-9_./-]+/[a-z0-9_.-]+\.(h|cpp|sh|md|py|txt)`'
  while read -r page; do
    while read -r path; do
      [[ -e $root/$path || -e $(dirname "$page")/$path ]] ||
        finding "${page#"$root"/}: there is no $path"
    done < <(prose "$page" | grep -oE "$pattern" | tr -d '`')
  done < <(pages)
}

# Commands of a page, one a line: lines of code blocks and code marks that start with ./shardbench.
# The pasted screen is the program's own and left out.
commands_of() {
  awk '
    /^<!-- screen:begin -->$/ { skipping = 1 }
    /^<!-- screen:end -->$/ { skipping = 0 }
    skipping { next }
    /^ *```/ { fenced = !fenced; next }
    fenced || /^    / {
      if ($1 == "./shardbench") { sub(/^ */, ""); sub(/ +# .*/, ""); print }
      next
    }
    {
      count = split($0, parts, "`")
      for (i = 2; i <= count; i += 2) if (parts[i] ~ /^\.\/shardbench( |$)/) print parts[i]
    }
  ' "$1"
}

check_commands() {
  local page line output checked=0
  local -a words
  local word
  while read -r page; do
    while read -r line; do
      read -ra words <<<"$line"
      checked=$((checked + 1))
      case ${words[1]-} in
        compare | run)
          if [[ $line != *--help* && $line != *--list* && $line != *--from* ]]; then
            words+=(--dry-run --quiet)
            [[ $line == *--data* ]] || words+=(--data synthetic)
          fi
          output=$("$argument" "${words[@]:1}" 2>&1 >/dev/null) ||
            finding "${page#"$root"/}: $line: $output"
          ;;
        layout)
          output=$("$argument" "${words[@]:1}" 2>&1 >/dev/null) ||
            finding "${page#"$root"/}: $line: $output"
          ;;
        collectives | diff) # they measure, or need files: their flags must exist
          output=$("$argument" "${words[1]}" --help)
          for word in "${words[@]:2}"; do
            [[ $word != -* ]] || grep -qE -- "(^|[ ,])${word%%=*}([ ,=]|$)" <<<"$output" ||
              finding "${page#"$root"/}: $line: no flag $word"
          done
          ;;
        *)
          grep -qE "^\./shardbench ${words[1]-compare}( |$)" "$root/shardbench" ||
            finding "${page#"$root"/}: $line: no such command"
          ;;
      esac
    done < <(commands_of "$page")
  done < <(pages)
  ((checked >= 20)) || finding "only $checked commands found in the pages"
}

# results/README.md names what results/record.sh makes, and what is there is complete.
check_results() {
  local name
  while read -r name; do
    grep -q "^|.*\`$name\`.*|" "$root/results/README.md" ||
      finding "results/README.md does not name $name"
    for file in "$name.json" "$name.txt"; do # and NAME.md for comparisons
      [[ -s $root/results/$file ]] || finding "results/$file is missing: run results/record.sh"
    done
  done < <("$root/results/record.sh" --list | awk '{ print $1 }')
}

# The check must see a stale page and a block that is too long, and rewriting must mend the former.
check_stale_page() {
  local copy
  copy=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf '$copy'" EXIT
  mkdir -p "$copy/common/train" "$copy/docs"
  cp -r "$root/ddp" "$root/zero3" "$root/fsdp" "$copy/"
  cp "$root/common/train/"{sharded,bucketed}.cpp "$copy/common/train/"
  cp "$root/docs/make_three_strategies.sh" "$root/docs/three-strategies.md" "$copy/docs/"
  local make=$copy/docs/make_three_strategies.sh
  "$make" --check || finding "a fresh copy is called stale"
  sed -i 's|^// \[hooks\]$|&\n// changed|' "$copy/fsdp/strategy.cpp"
  ! "$make" --check 2>/dev/null || finding "a changed hook is not noticed"
  "$make" || finding "the page could not be rewritten"
  "$make" --check || finding "a rewritten page is called stale"
  local i
  for ((i = 0; i < 60; ++i)); do echo '// line'; done >"$copy/lines"
  sed -i "/^\/\/ \[hooks\]$/r $copy/lines" "$copy/ddp/strategy.cpp"
  ! "$make" 2>/dev/null || finding "a block of more than 60 lines is not noticed"
}

case $case_name in
  three_strategies) "$root/docs/make_three_strategies.sh" --check || finding "see above" ;;
  stale_page) check_stale_page ;;
  readme_screen) "$root/docs/make_readme_screen.sh" --check || finding "see above" ;;
  links) check_links ;;
  paths) check_paths ;;
  commands) check_commands ;;
  results) check_results ;;
  sketch)
    awk '
      /^<!-- sketch:begin -->$/ { inside = 1; next }
      /^<!-- sketch:end -->$/ { inside = 0 }
      inside && !/^```/ { print }
    ' "$root/README.md" >"$argument"
    [[ -s $argument ]] || finding "README.md has no sketch"
    ;;
  *) finding "no case is called $case_name" ;;
esac
((findings == 0)) || exit 1
