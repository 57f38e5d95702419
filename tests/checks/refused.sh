#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Calls that cannot work are refused by the compiler with one sentence: tests/refused/calls.cpp, case by case.
# usage: refused.sh SOURCE_DIR CXX
set -euo pipefail
source_dir=$1 compiler=$2
file=$source_dir/tests/refused/calls.cpp
most_lines=32  # of the output with its trail of instantiations: g++ 12 needs up to 26, clang 14 up to 31

# Most of the time would go into reading the same header again: it is compiled once, ahead of all cases.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c++20 -I"$source_dir" -I"$source_dir/engine/api")
"$compiler" "${flags[@]}" -x c++-header "$source_dir/engine/api/troupe.hpp" -o "$work/troupe.hpp.gch" 2>"$work/said" ||
  { cat "$work/said" >&2; exit 1; }

compile() { "$compiler" "${flags[@]}" -fsyntax-only -DCASE="$1" -include "$work/troupe.hpp" "$file" 2>&1; }

failed=0
complain() {
  echo "case $1: $2" >&2
  failed=1
}
compile 0 >/dev/null || complain 0 "does not compile, so the others show nothing"
last=$(grep -c '^#elif CASE' "$file")
for ((n = 1; n <= last; ++n)); do
  sentence=$(awk -v n="$n" '/^#(if|elif) CASE/ { here = ($4 == n) } here && /\/\/ / { sub(/.*\/\/ /, ""); print }' "$file")
  # Behind it comes what the language says of an argument that has no type.
  others=0
  [[ $sentence == *' (and '* ]] && others=1 sentence=${sentence% (and *}
  [[ -n $sentence ]] || complain "$n" "has no sentence behind it"
  if text=$(compile "$n"); then
    complain "$n" "compiles"
    continue
  fi
  errors=$(grep 'error:' <<<"$text") || true
  [[ ${errors%%$'\n'*} == *"troupe: "*"$sentence"* && ($others == 1 || $errors != *$'\n'*) ]] ||
    complain "$n" "the first error, or the only one, must say \"$sentence\":"$'\n'"$text"
  (($(wc -l <<<"$text") <= most_lines)) || complain "$n" "takes more than $most_lines lines:"$'\n'"$text"
done
exit $failed
