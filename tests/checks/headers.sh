#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# headers.sh ROOT WORK_DIR UNITY COMPILER...: every header of the library compiles on its own, warnings are errors, and is guarded. A header
# that its own source includes first has been shown to by a build of every file by itself (UNITY is 0), else it is compiled here like the
# others. header_chains.awk says which of them one compilation shows together.
set -euo pipefail
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
root=$1 work=$2/headers unity=$3
shift 3

cd "$root"
mkdir -p "$work"
mapfile -t headers < <(find memory topology protocols actors engine -name '*.hpp' | sort)

by_build() {
  local source=${1%.hpp}.cpp
  grep -q '^#pragma once$' "$1" && [[ -f $source && $(grep -m 1 '^#include' "$source") == "#include \"$1\"" ]]
}

# One tiny source per chain, each header included twice, compiled as an object so that ccache can answer the next run.
check() {
  local chain=$1 work=$2 header text=
  shift 2
  for header in $chain; do
    text+="#include \"$header\"
#include \"$header\" // a second time: it must be guarded
"
  done
  local source=$work/${header//\//_}.cpp
  [[ -f $source && $(<"$source") == "${text%$'\n'}" ]] || printf '%s' "$text" >"$source"
  "$@" -std=c++20 -O0 -Wall -Wextra -Wconversion -Werror -I. -Iengine/api -c "$source" -o "$source.o" ||
    { echo "the header that is named above, of $chain, does not compile on its own"; return 1; }
}
export -f check

selected=() first=0
for header in "${headers[@]}"; do
  if [[ $unity == 0 ]] && by_build "$header"; then first=$((first + 1)); else selected+=("$header"); fi
done
((${#selected[@]})) || { echo "found no headers in $root"; exit 1; }
chains=$(awk -f "$here/header_chains.awk" "${selected[@]}")
[[ $(tr ' ' '\n' <<<"$chains" | sort) == "$(printf '%s\n' "${selected[@]}" | sort)" ]] || { echo "header_chains.awk lost a header"; exit 1; }
xargs -P "$(nproc)" -d '\n' -I{} bash -c 'check "$@"' check {} "$work" "$@" <<<"$chains" ||
  { echo "some headers do not compile on their own; see above"; exit 1; }
# What C programs include compiles as C, too.
c_headers=$(find engine/bindings -name '*.h')
[[ -n $c_headers ]] || { echo "found no C headers in $root"; exit 1; }
for header in $c_headers; do
  "$@" -x c -std=c11 -Wall -Wextra -Werror -I. -fsyntax-only "$header" || { echo "$header is no C"; exit 1; }
done
echo "${#selected[@]} headers compile on their own, by $(wc -l <<<"$chains") compilations; $first more are what their sources include first"
