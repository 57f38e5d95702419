#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Calls that cannot work are refused by the compiler with one sentence: tests/refused/calls.cpp, case by case.
# usage: refused.sh SOURCE_DIR CXX
# With this compiler, and with clang where that is installed and not the same: it says it by other means (engine/api/refusals.hpp).
set -euo pipefail
source_dir=$1
file=$source_dir/tests/refused/calls.cpp
last=$(grep -c '^#elif CASE' "$file")
failed=0

# Most of the time would go into reading the same header again: it is compiled once, ahead of all cases.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c++20 -I"$source_dir" -I"$source_dir/engine/api")
compile() { "$compiler" "${flags[@]}" -fsyntax-only -DCASE="$1" -include "$work/troupe.hpp" "$file" 2>&1; }

complain() {
  echo "$compiler, case $1: $2" >&2
  failed=1
}

# all_cases COMPILER
all_cases() {
  compiler=$1
  local is_clang=0 n sentence others text errors most_lines=32  # with the trail of instantiations: g++ 12 needs up to 26
  # clang leads to the call: three lines there, three where it was refused, and how many errors there are.
  "$compiler" -dM -E -x c++ /dev/null | grep -q __clang__ && is_clang=1 most_lines=7
  "$compiler" "${flags[@]}" -x c++-header "$source_dir/engine/api/troupe.hpp" -o "$work/troupe.hpp.gch" 2>"$work/said" ||
    { cat "$work/said" >&2; exit 1; }
  compile 0 >/dev/null || complain 0 "does not compile, so the others show nothing"
  for ((n = 1; n <= last; ++n)); do
    sentence=$(awk -v n="$n" '/^#(if|elif) CASE/ { here = ($4 == n) } here && /\/\/ / { sub(/.*\/\/ /, ""); print }' "$file")
    # Behind it comes what the language says of an argument that has no type.
    others=0
    [[ $sentence == *' (and '* ]] && others=$((1 - is_clang)) sentence=${sentence% (and *}
    [[ -n $sentence ]] || complain "$n" "has no sentence behind it"
    if text=$(compile "$n"); then
      complain "$n" "compiles"
      continue
    fi
    errors=$(grep 'error:' <<<"$text") || true
    [[ ${errors%%$'\n'*} == *"troupe: "*"$sentence"* && ($others == 1 || $errors != *$'\n'*) ]] ||
      complain "$n" "the first error, or the only one, must say \"$sentence\":"$'\n'"$text"
    ((!is_clang)) || [[ $text == "$file":* ]] || complain "$n" "the call must come first:"$'\n'"$text"
    (($(wc -l <<<"$text") <= most_lines)) || complain "$n" "takes more than $most_lines lines:"$'\n'"$text"
  done
}

all_cases "$2"
if [[ $("$2" --version) != *clang* ]] && command -v clang++ >/dev/null; then all_cases clang++; fi
exit $failed
