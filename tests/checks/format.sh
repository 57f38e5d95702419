#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh [ROOT]: every C++ file is as clang-format leaves it. Versions differ in details; ours is Debian 12's, 14. Ends with 77
# (skipped) where there is none of that version.
set -euo pipefail
cd "${1:-.}"

for name in clang-format-14 clang-format; do
  program=$(command -v $name) && [[ $("$program" --version) == *"version 14."* ]] && break
  program=
done
[[ $program ]] || { echo "skipped: there is no clang-format 14 here (Debian 12: clang-format)"; exit 77; }

mapfile -d '' files < <(find actors engine topology memory protocols tests bench examples \
  \( -name '*.cpp' -o -name '*.hpp' \) -print0)
((${#files[@]})) || { echo "found no C++ files in $PWD"; exit 1; }
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 50 "$program" --dry-run --Werror --ferror-limit=1 ||
  { echo "./dev format puts the files above right"; exit 1; }
echo "${#files[@]} files are formatted"
