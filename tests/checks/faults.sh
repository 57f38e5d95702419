#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# faults.sh ROOT: layers.sh finds each kind of fault in a small tree that has nothing but that one, and none in the tree without.
set -euo pipefail
check=$(realpath "$1")/tests/checks/layers.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"

good() {
  rm -rf ./*
  mkdir -p memory/types memory/kernels topology protocols/{score,lower,perform} actors/{rank,caf} engine/{api,tools} tests examples bench
  echo 'struct buffer { int x; };' >memory/types/buffer.hpp
  printf '#include "memory/types/buffer.hpp"\nstruct buffer;\nclass planner : base {\n};\n' >engine/api/planner.hpp
  echo '#include <caf/actor.hpp>' >actors/caf/rank.hpp
  printf 'enum class collective : int {\n  all_gather,  ///< one\n  scan,\n};\n' >protocols/collective.hpp
}
missed=0
# fault FILE LINE WHY: with LINE at the end of FILE the check fails and says WHY.
fault() {
  good
  printf '%b\n' "$2" >>"$1"
  if said=$(bash "$check" .) || [[ $said != *"$1:"*"$3"* ]]; then
    printf 'not found: %s in %s\n%s\n' "$2" "$1" "$said"
    missed=$((missed + 1))
  fi
}

good
bash "$check" . >/dev/null || { echo "finds a fault where there is none:"; bash "$check" .; exit 1; }
fault memory/types/buffer.hpp '#include "engine/api/planner.hpp"' 'is below engine/'
fault actors/rank/rank.hpp 'class planner;' 'ahead of its layer'
fault protocols/score/score.cpp '  struct planner;' 'ahead of its layer'
fault memory/types/types.hpp '#include "memory/kernels/kernels.hpp"' 'must not include memory/kernels/'
fault protocols/lower/lower.cpp '#include "protocols/perform/performer.hpp"' 'must not include protocols/perform/'
fault actors/rank/rank.cpp '#include "actors/caf/rank.hpp"' 'must not include actors/caf/'
fault engine/api/engine.cpp '#include "engine/tools/tune.hpp"' 'must not include engine/tools/'
fault actors/rank/rank.cpp '#include <caf/actor.hpp>' 'CAF is for'
fault engine/api/engine.cpp '# include <caf/all.hpp>' 'CAF is for'
fault tests/main.cpp '#include <caf/all.hpp>' 'CAF is for'
fault actors/caf/rank.hpp '#if TROUPE_CAF_0' 'which version of CAF'
fault actors/caf/timer_clock.cpp '#if TROUPE_CAF_0' 'which version of CAF'
fault protocols/score/score.cpp '#include <thread>' 'no thread'
fault protocols/score/score.cpp 'auto now = std::chrono::steady_clock::now();' 'no thread'
fault actors/rank/rank.cpp 'std::this_thread::yield();' 'for actors/waiting'
fault actors/rank/rank.cpp 'auto now = std::chrono::system_clock::now();' 'the calendar may jump'
fault actors/rank/rank.cpp '    case collective::scan: break;' 'told apart by their traits'
fault engine/api/engine.cpp '  if (what == all_gather || what == scan) return;' 'told apart by their traits'
fault engine/api/engine.cpp '#include <ucp/api/ucp.h>' 'UCX is for'
fault engine/api/engine.cpp '#include <sys/socket.h>' 'sockets are for'
fault engine/api/engine.cpp '#include "tests/seed.hpp"' 'not part of the library'
fault engine/api/engine.cpp '#include "../world/core.hpp"' 'from the root'

((missed == 0)) || exit 1
echo "layers.sh finds what it is for"
