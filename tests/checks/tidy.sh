#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh ROOT BUILD [--all]: clang-tidy, with the checks of .clang-tidy, on what has changed in the library and the program since the
# base: TROUPE_CHECK_BASE, else where this branch left main, else (on main itself) the commit before. All of it takes minutes; of a
# change of more than `most` files, only those with the most changed lines are looked at. --all: everything. Ends with 77 (skipped)
# where there is no clang-tidy, or no history to compare with.
set -euo pipefail
cd "$1"
build=$2 all=${3:-}
most=20
folders=(memory topology protocols actors engine)

skip() { echo "skipped: $*"; exit 77; }
command -v clang-tidy >/dev/null || skip "there is no clang-tidy here (Debian: clang-tidy)"
# The commands of every file by itself, which a build with TROUPE_UNITY does not have.
commands=$build/every_file
cmake -S . -B "$commands" -G Ninja -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DTROUPE_TESTS=OFF --log-level=WARNING >/dev/null ||
  { echo "cannot configure $commands; see above"; exit 1; }

# "lines file" of every changed file; untracked ones count in full.
changed() {
  git diff --numstat --no-renames --diff-filter=d "$1" -- "${folders[@]}" | cut -f 1,3
  local file
  git ls-files --others --exclude-standard -- "${folders[@]}" | while IFS= read -r file; do
    printf '%s\t%s\n' "$(wc -l <"$file")" "$file"
  done
}
# The source that shows a file to clang-tidy: itself; of a header the source beside it, or one that includes it.
source_of() {
  case $1 in
    *.cpp) echo "$1" ;;
    *.hpp)
      if [[ -f ${1%.hpp}.cpp ]]; then echo "${1%.hpp}.cpp"
      else grep -rlF --include='*.cpp' "#include \"$1\"" "${folders[@]}" | sort | head -n 1 || true
      fi ;;
  esac
}

if [[ $all == --all ]]; then
  mapfile -t sources < <(find "${folders[@]}" -name '*.cpp' | sort)
  why="all"
else
  git rev-parse --verify -q HEAD >/dev/null 2>&1 || skip "this is no clone: there is no history to compare with"
  base=${TROUPE_CHECK_BASE:-}
  for main in origin/main main; do
    [[ $base ]] || base=$(git merge-base HEAD "$main" 2>/dev/null) || base=
  done
  [[ $base && $(git rev-parse "$base") != $(git rev-parse HEAD) ]] || [[ ${TROUPE_CHECK_BASE:-} ]] ||
    base=$(git rev-parse -q --verify HEAD~1) || skip "there is no commit before this one to compare with"
  mapfile -t sources < <(changed "$base" | sort -rn | cut -f 2 |
    while IFS= read -r file; do source_of "$file"; done | awk '!seen[$0]++')
  why="changed since $(git rev-parse --short "$base")"
  if ((${#sources[@]} > most)); then
    why="$why; ${#sources[@]} are, these have the most changed lines; ./dev check --all looks at all"
    sources=("${sources[@]:0:most}")
  fi
fi
((${#sources[@]})) || { echo "nothing to look at: no file has $why"; exit 0; }

printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -n 1 clang-tidy -p "$commands" --quiet 2>/dev/null ||
  { echo "clang-tidy objects; see above"; exit 1; }
echo "clang-tidy looked at ${#sources[@]} files ($why)"
