#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# licences.sh [ROOT]: every source file and script begins with its licence (https://spdx.dev).
set -euo pipefail
cd "${1:-.}"

line='SPDX-License-Identifier: Apache-2.0'
files=$(find . \( -name .git -o -name build \) -prune -o -type f \
  \( -name '*.c' -o -name '*.cpp' -o -name '*.hpp' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' -o -name CMakeLists.txt -o -name dev \) -print)
missing=$(comm -23 <(sort <<<"$files") <(xargs -d '\n' awk -v line="$line" \
  'index($0, line) { print FILENAME } FNR == 2 { nextfile }' <<<"$files" | sort))
if [[ -n $missing ]]; then
  printf '%s\n' "$missing" "the files above lack the line: $line"
  exit 1
fi
echo "$(wc -l <<<"$files") files begin with their licence"
