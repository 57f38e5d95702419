#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# packages.sh [ROOT]: whatever Debian package a header comes from that the library or the program includes, `dev` names it in
# build_packages, or one that depends on it. What is only there because something else wanted it is missing on a new machine: there
# `./dev run` fails.
set -euo pipefail
cd "${1:-.}"
command -v dpkg-query >/dev/null || { echo "not a Debian system: skipped"; exit 77; }
folders=(memory topology protocols actors engine)

named=$(awk '/^build_packages=\(/ { on = 1; next } on && /^\)/ { exit } on' dev)
[[ -n $named ]] || { echo "dev has no build_packages: what did this look at?"; exit 1; }
# With those that they bring. libc's come with any compiler.
# shellcheck disable=SC2086  # words
brought=" $(tr -s ' \n' ' ' <<<"$named libc6-dev linux-libc-dev") $(dpkg-query -W -f='${Depends}, ' $named 2>/dev/null |
  sed -E 's/ *\([^)]*\)//g; s/:any//g; s/[,|]+/ /g') "

# What actors/ports/link/ucx includes, CMake looks for: it is built without, too.
headers=$(grep -rhoE '^ *# *include *<[^>]+\.h(pp)?>' --include='*.?pp' --exclude-dir=ucx "${folders[@]}" | sed -E 's/.*<(.*)>/\1/' | sort -u || true)
files=$(for header in $headers; do ls -d "/usr/include/$header" "/usr/include/$(uname -m)-linux-gnu/$header" 2>/dev/null || true; done)
[[ -n $files ]] || { echo "found no header that the sources name: what did this look at?"; exit 1; }
missing=0
# Of files that no package has (somebody's own) dpkg-query says nothing.
while IFS=: read -r package rest; do
  [[ $brought == *" $package "* ]] && continue
  header=${rest##*/usr/include/}
  printf '%s: nothing in build_packages of ./dev brings its package, %s; included by\n' "$header" "$package"
  grep -rl "#include <$header>" "${folders[@]}" | sed 's/^/  /'
  missing=$((missing + 1))
done < <(xargs -r dpkg-query -S <<<"$files" 2>/dev/null || true)
((missing == 0)) || exit 1
echo "$(wc -w <<<"$files") headers come with the packages that ./dev installs"
