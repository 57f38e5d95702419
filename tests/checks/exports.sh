#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# exports.sh LIBRARY ROOT PUBLIC_HEADER...: every symbol that the library exports is a function or an object marked TROUPE_API in a public header, a
# member of a class that is, or belongs to such a class's type information; and there are some.
set -euo pipefail
library=$1 root=$2
shift 2
cd "$root"

# "class error", "function name" … of everything that is marked.
marked=$(awk '
  { text = text $0 "\n" }
  END {
    gsub(/\/\/[^\n]*/, "", text)
    while (match(text, /TROUPE_API[^;{(]*[;{(]/)) {
      mark = substr(text, RSTART, RLENGTH); before = substr(text, 1, RSTART - 1); text = substr(text, RSTART + RLENGTH)
      gsub(/[ \n]+/, " ", before); gsub(/[ \n]+/, " ", mark)
      if (before ~ /(class|struct) $/) { split(mark, word, " "); print "class " word[2] }
      else { sub(/ *[;{(]$/, "", mark); sub(/.*[ &*]/, "", mark); print "function " mark }
    }
  }' "$@" | sort -u)

faults=0 count=0
while IFS= read -r symbol; do
  count=$((count + 1))
  name=${symbol%%(*}                                          # troupe::calls::all_reduce, troupe::layout::parse
  name=${name//\[abi:cxx11\]/}
  name=${name#typeinfo for } name=${name#typeinfo name for } name=${name#vtable for }
  last=${name##*::} owner=${name%::*} owner=${owner%%<*} owner=${owner##*::}  # also of an instantiated class template
  if [[ $symbol == *'('* ]] && grep -qxF -e "function $last" -e "class $owner" <<<"$marked"; then continue; fi
  if [[ $symbol != *'('* ]] && grep -qxF -e "class $last" -e "function $last" <<<"$marked"; then continue; fi
  echo "exported, but in no public header: $symbol"
  faults=$((faults + 1))
done < <(nm -DC --defined-only "$library" | cut -d ' ' -f 3-)

((count > 0)) || { echo "$library exports nothing"; exit 1; }
((faults == 0)) || { echo "hidden symbols are the rule: see memory/export.hpp and cmake/troupe.exports"; exit 1; }
echo "$count exported symbols, all of public headers"
