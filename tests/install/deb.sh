#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deb.sh BUILD WORK: the Debian packages of the tree BUILD, made and unpacked in the folder WORK. The program runs from there, the library and
# its headers lie where they belong, and the packages that they depend on are installed here, where all was built.
set -euo pipefail
build=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
for tool in cpack dpkg-deb dpkg-query dpkg-shlibdeps file; do
  command -v "$tool" >/dev/null || { echo "there is no $tool: skipped"; exit 77; }
done
rm -rf "${work:?}"/*
cd "$work"
trap 'rm -rf "${work:?}"/*' EXIT
wrong() { printf '%s\n' "$*"; exit 1; }

cpack --config "$build/CPackConfig.cmake" -G DEB || wrong "cpack failed"
packages=(*.deb)
[[ ${#packages[@]} == 3 ]] || wrong "there should be three packages, not: ${packages[*]}"
names_of() { sed -E 's/\([^)]*\)//g; s/:any//g; s/[,|]/ /g' | tr -s ' ' '\n' | sed '/^$/d'; }
# With the names that installed packages provide.
there=$(
  for package in "${packages[@]}"; do dpkg-deb -f "$package" Package; done
  dpkg-query -W -f='${db:Status-Status} ${Package}, ${Provides}\n' | sed -n 's/^installed //p' | names_of
)
for package in "${packages[@]}"; do
  dpkg-deb -x "$package" unpacked
  depends=$(dpkg-deb -f "$package" Depends)
  [[ -n $depends ]] || wrong "$package depends on nothing"
  while read -r alternatives; do
    names_of <<<"$alternatives" | grep -qxF "$there" && continue
    wrong "$package depends on $alternatives, which is not installed here"
  done < <(tr ',' '\n' <<<"$depends")
done

for file in 'libtroupe.so.*' libtroupe.so troupe.hpp troupeConfig.cmake troupe.1; do
  [[ -n $(find unpacked -name "$file") ]] || wrong "no $file in: $(find unpacked)"
done
library=$(find "$work/unpacked" -name 'libtroupe.so.*' -printf '%h\n' -quit)
listed=$(LD_LIBRARY_PATH=$library unpacked/usr/bin/troupe list) || wrong "the program of the package does not run"
grep -qx ring <<<"$listed" || wrong "the program of the package does not list ring, but: $listed"
