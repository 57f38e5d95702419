#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# header_faults.sh ROOT COMPILER...: headers.sh finds each kind of fault in a small tree that has nothing but that one, and none in the tree
# without; above all where a header that stands before it in its chain would hide the fault.
set -euo pipefail
check=$(realpath "$1")/tests/checks/headers.sh
shift
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"

good() {
  rm -rf ./*
  mkdir -p memory topology protocols actors engine/{api,bindings}
  echo 'int troupe_version(void);' >engine/bindings/troupe.h
  printf '#pragma once\n#include <vector>\ninline std::vector<int> lowest() { return {}; }\n' >memory/lowest.hpp
  printf '#pragma once\n#include "memory/lowest.hpp"\ninline auto middle() { return lowest(); }\n' >memory/middle.hpp
  printf '#pragma once\n#include <map>\n#include "memory/middle.hpp"\ninline std::map<int, int> highest() { middle(); return {}; }\n' >engine/api/highest.hpp
  printf '#pragma once\n#include <string>\ninline std::string apart() { return {}; }\n' >engine/apart.hpp
}
missed=0
# fault FILE LINES WHY: with LINES as FILE the check fails and says WHY.
fault() {
  good
  printf '%b\n' "$2" >"$1"
  if said=$(bash "$check" . work 1 "${compiler[@]}" 2>&1) || [[ $said != *"$3"* ]]; then
    printf 'not found: %s in %s\n%s\n' "$2" "$1" "$said"
    missed=$((missed + 1))
  fi
}
compiler=("$@")

good
said=$(bash "$check" . work 1 "${compiler[@]}" 2>&1) || { printf 'finds a fault where there is none:\n%s\n' "$said"; exit 1; }
[[ $said == *'4 headers compile on their own, by 2 compilations'* ]] || { printf 'not two chains of four headers:\n%s\n' "$said"; exit 1; }
fault memory/lowest.hpp '#pragma once\ninline std::vector<int> lowest() { return {}; }' 'memory/lowest.hpp:2'
fault memory/middle.hpp '#pragma once\ninline auto middle() { return lowest(); }' 'memory/middle.hpp:2'
fault engine/api/highest.hpp '#pragma once\n#include <map>\ninline std::map<int, int> highest() { middle(); return {}; }' 'highest.hpp:3'
fault engine/apart.hpp '#pragma once\ninline std::string apart() { return {}; }' 'engine/apart.hpp:2'
fault memory/lowest.hpp '#include <vector>\ninline std::vector<int> lowest() { return {}; }' 'redefinition'
# It shares what it includes with others, but not all that these have.
fault engine/apart.hpp '#pragma once\n#include "memory/lowest.hpp"\ninline auto apart() { return middle(); }' 'engine/apart.hpp:3'
# An include that comes late, or under a condition, is nothing to rely on.
fault engine/api/highest.hpp '#pragma once\ninline auto highest() { return middle(); }\n#include "memory/middle.hpp"' 'highest.hpp:2'
fault engine/api/highest.hpp '#pragma once\n#if 0\n#include "memory/middle.hpp"\n#endif\ninline auto highest() { return middle(); }' 'highest.hpp:5'
fault engine/bindings/troupe.h 'bool troupe_version();' 'is no C'

((missed == 0)) || exit 1
echo "headers.sh finds what it is for"
