#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Calls that cannot work are refused by the compiler with one sentence: tests/refused/calls.cpp, case by case.
# usage: refused.sh SOURCE_DIR CXX
# With this compiler, and with clang where that is installed and not the same: it says it by other means (engine/api/refusals.hpp).
#
# Most of the time would go into reading the same header again. So all cases are compiled together first, each a block of one function, and what is
# said is sorted by the lines of calls.cpp that it names. A case of which that does not show all that it must is compiled by itself: an error is
# said once for all calls that need the same function of the same types.
set -euo pipefail
source_dir=$1
file=$source_dir/tests/refused/calls.cpp
last=$(grep -c '^#elif CASE' "$file")
failed=0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c++20 -I"$source_dir" -I"$source_dir/engine/api" -fsyntax-only)
alone() { "$compiler" "${flags[@]}" -DCASE="$1" "$file" 2>&1; }

# Fills the folder said: what is said of case n goes to the file n, what names no case to "none".
together() {
  local every=$1
  rm -rf "$work/said"
  mkdir "$work/said"
  (echo "#line 1 \"$file\"" && sed -e 's/^#if CASE == .*/{/; s/^#elif CASE == .*/} {/; s/^#endif/}/' "$file") >"$work/together.cpp"
  "$compiler" "${flags[@]}" "$every" "$work/together.cpp" 2>&1 | grep -v '^[0-9]* errors generated' >"$work/all" || true
  # One message is an error, what leads to it ahead and the notes behind. What leads to it is not said again of a second error in the same place.
  awk -v file="$file" -v said="$work/said" '
    FNR == NR { if (/^#(if|elif) CASE == /) here = $4; if (/^#endif/) here = "none"; case_of[FNR] = here; next }
    function end_message() { printf "%s", message > (said "/" at); message = ""; named = errors = 0 }
    BEGIN { here = at = "none" }
    (errors && (/ error: / || /: In .*:$/ || /^In file included from /)) { end_message() }
    { message = message $0 "\n" }
    / error: / { errors = 1 }
    !named && index($0, file ":") == 1 { split(substr($0, length(file) + 2), line, ":"); if (line[1] in case_of) { named = 1; at = case_of[line[1]] } }
    END { end_message() }' "$file" "$work/all"
}

complain() {
  echo "$compiler, case $1: $2" >&2
  failed=1
}

# fault_of CASE TEXT LINES: what is wrong with what is said of a case, in no more than so many lines; nothing if it is what it must be.
fault_of() {
  local text=$2 others=0 sentence errors
  sentence=$(awk -v n="$1" '/^#(if|elif) CASE/ { here = ($4 == n) } here && /\/\/ / { sub(/.*\/\/ /, ""); print }' "$file")
  # Behind it comes what the language says of an argument that has no type.
  [[ $sentence == *' (and '* ]] && others=$((1 - is_clang)) sentence=${sentence% (and *}
  [[ -n $sentence ]] || { echo "has no sentence behind it"; return; }
  errors=$(grep 'error:' <<<"$text") || { echo "compiles"; return; }
  [[ ${errors%%$'\n'*} == *"troupe: "*"$sentence"* && ($others == 1 || $errors != *$'\n'*) ]] ||
    { echo "the first error, or the only one, must say \"$sentence\":"$'\n'"$text"; return; }
  ((!is_clang)) || [[ $text == "$file":* ]] || { echo "the call must come first:"$'\n'"$text"; return; }
  (($(wc -l <<<"$text") <= $3)) || echo "takes more than $3 lines:"$'\n'"$text"
}

# all_cases COMPILER
all_cases() {
  compiler=$1 is_clang=0
  local n text fault every=-fmax-errors=0 most_lines=32 by_itself=0  # with the trail of instantiations: g++ 12 needs up to 26
  # clang leads to the call: three lines there, three where it was refused, and how many errors there are.
  [[ $("$compiler" -dM -E -x c++ /dev/null) != *__clang__* ]] || is_clang=1 most_lines=7 every=-ferror-limit=0
  together "$every"
  [[ ! -s $work/said/none ]] || complain none "$(<"$work/said/none")"
  [[ ! -s $work/said/0 ]] || complain 0 "does not compile, so the others show nothing:"$'\n'"$(<"$work/said/0")"
  for ((n = 1; n <= last; ++n)); do
    text=
    [[ ! -f $work/said/$n ]] || text=$(<"$work/said/$n")
    # From where a header was included is said once for all of them, and how many errors there are is left out.
    fault=$(fault_of "$n" "$text" $((is_clang ? most_lines - 1 : most_lines - 6)))
    [[ $fault ]] || continue
    by_itself=$((by_itself + 1))
    text=$(alone "$n") || true
    fault=$(fault_of "$n" "$text" "$most_lines")
    [[ ! $fault ]] || complain "$n" "$fault"
  done
  echo "$compiler refuses $last calls; $by_itself of them were compiled by themselves"
}

all_cases "$2"
if [[ $("$2" --version) != *clang* ]] && command -v clang++ >/dev/null; then all_cases clang++; fi
exit $failed
