#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# headers.sh ROOT WORK_DIR UNITY COMPILER...: every header of the library compiles on its own, warnings are errors, and is guarded. A header
# that its own source includes first has been shown to by a build of every file by itself (UNITY is 0), else it is compiled here like the
# others. But for those that include CAF and have no such source: they cost seconds each and are left to the sources that include them.
set -euo pipefail
root=$1 work=$2/headers unity=$3
shift 3

cd "$root"
mkdir -p "$work"
mapfile -t headers < <(find memory topology protocols actors engine -name '*.hpp' | sort)
# A header of actors/ that reaches CAF through another one counts as one that includes it.
caf_headers=$(grep -rl --include='*.hpp' -E '#include <caf/' actors || true)
reaches_caf() {
  local caf
  grep -qE '#include <caf/' "$1" && return 0
  for caf in $caf_headers; do grep -qF "#include \"$caf\"" "$1" && return 0; done
  return 1
}

by_build() {
  local source=${1%.hpp}.cpp
  grep -q '^#pragma once$' "$1" && [[ -f $source && $(grep -m 1 '^#include' "$source") == "#include \"$1\"" ]]
}

# One tiny source per header, compiled twice-included, as an object so that ccache can answer the next run.
check() {
  local header=$1 work=$2
  shift 2
  local source=$work/${header//\//_}.cpp
  local text="#include \"$header\"
#include \"$header\" // a second time: it must be guarded"
  [[ -f $source && $(<"$source") == "$text" ]] || printf '%s\n' "$text" >"$source"
  "$@" -std=c++20 -O0 -Wall -Wextra -Wconversion -Werror -I. -Iengine/api -c "$source" -o "$source.o" ||
    { echo "$header does not compile on its own"; return 1; }
}
export -f check

selected=() first=0
for header in "${headers[@]}"; do
  if by_build "$header"; then
    if [[ $unity == 0 ]]; then first=$((first + 1)); else selected+=("$header"); fi
  elif [[ $header != actors/* ]] || ! reaches_caf "$header"; then selected+=("$header")
  fi
done
((${#selected[@]})) || { echo "found no headers in $root"; exit 1; }
printf '%s\0' "${selected[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c 'check "$@"' check {} "$work" "$@" ||
  { echo "some headers do not compile on their own; see above"; exit 1; }
# What C programs include compiles as C, too.
c_headers=$(find engine/bindings -name '*.h')
[[ -n $c_headers ]] || { echo "found no C headers in $root"; exit 1; }
for header in $c_headers; do
  "$@" -x c -std=c11 -Wall -Wextra -Werror -I. -fsyntax-only "$header" || { echo "$header is no C"; exit 1; }
done
echo "${#selected[@]} headers compile on their own; $first more are what their sources include first"
