#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# layers.sh [ROOT]: what may name what.
#  - Includes and forward declarations point downward only: memory < topology < protocols < actors < engine.
#  - Inside a layer the folders have an order, too, where `inner` below gives one.
#  - CAF is included only in actors/caf and actors/virtual, and where somebody stands outside who is made of CAF actors.
#  - protocols/ knows no thread, clock or system call.
#  - Only actors/waiting sleeps, yields and calls futexes.
#  - Only the program reads the calendar, which may jump.
#  - Only the table of traits (protocols/collective.cpp) lists collectives.
#  - Only actors/ports/link, and the launcher, open sockets.
#  - Only actors/ports/link/ucx includes UCX.
#  - The library knows nothing of the program (engine/tools), of tests and of benchmarks.
#  - Project includes are written from the root.
set -euo pipefail
cd "${1:-.}"

layers=(memory topology protocols actors engine)
# Per line: folders that may include themselves and what stands to the left of them, but nothing to the right of them. Folders joined
# by + are one. Folders that a line does not name are free.
inner=(
  "memory/types memory/kernels"
  "topology/layout topology/machine topology/presets"
  "protocols/score+protocols/choreographies protocols/verify protocols/lower protocols/program protocols/perform protocols/offload"
  "protocols/score+protocols/choreographies protocols/agreement"
  "actors/rank+actors/ports+actors/waiting+actors/elements+actors/flow actors/caf actors/virtual"
  "engine/api+engine/planning+engine/world+engine/config+engine/flow+engine/experts engine/bindings"
  "engine/api+engine/planning+engine/world+engine/config+engine/flow+engine/experts engine/tools"
)
caf_users='^(actors/caf/|actors/virtual/|tests/actors/|examples/05_|bench/scheduler_)'

faults=0
# report WHY: prints every line of its input as a fault.
report() {
  local line
  while IFS= read -r line; do
    printf '%s\n    %s\n' "$line" "$1"
    faults=$((faults + 1))
  done
}
# search REGEX PATH...: file:line:text of the matching lines.
search() {
  local pattern=$1 path paths=()
  shift
  for path in "$@"; do [[ -e $path ]] && paths+=("$path"); done
  ((${#paths[@]})) || return 0
  grep -rnE --include='*.hpp' --include='*.cpp' "$pattern" "${paths[@]}" || (($? == 1))
}
# includes REGEX PATH...: the same, of #include lines.
includes() {
  local pattern=$1
  shift
  search "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]$pattern" "$@"
}

for ((i = 0; i < ${#layers[@]}; i++)); do
  [[ -d ${layers[i]} ]] || { echo "there is no ${layers[i]}/ in $PWD"; exit 1; }
  for ((upper = i + 1; upper < ${#layers[@]}; upper++)); do
    report "${layers[i]}/ is below ${layers[upper]}/ and must not include it" \
      < <(includes "${layers[upper]}/" "${layers[i]}")
  done
  report "tests and benchmarks are not part of the library" < <(includes '(tests|bench|examples)/' "${layers[i]}")
  report "write the include from the root of the tree, as \"memory/types/types.hpp\"" < <(includes '\.\.?/' "${layers[i]}")
done

for line in "${inner[@]}"; do
  read -ra groups <<<"$line"
  for ((i = 0; i < ${#groups[@]}; i++)); do
    for ((upper = i + 1; upper < ${#groups[@]}; upper++)); do
      for above in ${groups[upper]//+/ }; do
        report "${groups[i]//+/, } must not include $above/" < <(includes "$above/" ${groups[i]//+/ })
      done
    done
  done
done

report "CAF is for actors/caf and actors/virtual, their tests and benchmark, and examples/05_* only" \
  < <(includes 'caf/' "${layers[@]}" tests bench examples | grep -vE "$caf_users")

report "which version of CAF it is only actors/caf/caf_compat.* know" < <(
  search 'TROUPE_CAF_0|CAF_VERSION' "${layers[@]}" bench examples |
    grep -vE '^actors/caf/caf_compat\.[ch]pp:')

report "protocols/ knows no thread, clock or system call" < <(
  includes '(thread|condition_variable|future|semaphore|latch|barrier|stop_token|ctime|time\.h|unistd\.h|fcntl\.h|sys/)' protocols
  search '_clock::now|this_thread' protocols)

# Whoever waits does it by actors/waiting (futex.hpp, napping.hpp). The program's own threads may.
report "sleeps, yields and futexes are for actors/waiting" < <(
  search 'this_thread::(sleep|yield)|sched_yield|nanosleep|usleep|SYS_futex' actors engine |
    grep -vE '^(actors/waiting|engine/tools)/')

report "time is measured by std::chrono::steady_clock; the calendar may jump" < <(
  search 'system_clock|high_resolution_clock|CLOCK_REALTIME|gettimeofday|[^_a-z]time\((nullptr|NULL|0)\)' "${layers[@]}" | grep -vE '^engine/tools/')

# Those that perform or start collectives name theirs, and the selections of NCCL and HCCL those that they know. Others may ask for one.
collectives=$(sed -n '/^enum class collective /,/^}/s/^  \([a-z_]*\),.*/\1/p' protocols/collective.hpp 2>/dev/null | paste -sd'|')
if [[ -n $collectives ]]; then
  report "collectives are told apart by their traits (protocols/collective.hpp), which do not compile when one is forgotten" < <(
    search "case ([a-z]+::)*($collectives):|(==|!=) (collective::)?($collectives)\\b.*(\\|\\||&&).*(==|!=) (collective::)?($collectives)\\b" \
      protocols actors engine | grep -vE '^(protocols/(collective\.|choreographies/)|engine/(planning/(nccl|hccl)_selection|flow/|tools/))')
fi

report "UCX is for actors/ports/link/ucx" < <(
  includes '(ucp|ucs|uct)/' "${layers[@]}" tests bench examples | grep -v '^actors/ports/link/ucx/')
# Who speaks to other processes does it by actors/ports/link: there are the key, the limits of what strangers may do, and the deadlines. The launcher
# looks for the interface by which a host is reached.
report "sockets are for actors/ports/link (sockets.hpp)" < <(
  includes '(sys/(socket|un)\.h|netdb\.h|boost/asio|asio)' "${layers[@]}" |
    grep -vE '^(actors/ports/link/|engine/tools/launch/)')

# A forward declaration names its layer by where the type is defined. Names defined in several layers, or in the file itself, say nothing.
report "is declared ahead of its layer" < <(
  search '^[[:space:]]*(class|struct|enum|union)[[:space:]]' "${layers[@]}" | awk -F: '
    BEGIN { split("memory topology protocols actors engine", order, " "); for (i in order) level[order[i]] = i }
    {
      file = $1; place = $1 ":" $2; text = $0; sub(/^[^:]*:[^:]*:/, "", text)
      layer = file; sub(/\/.*/, "", layer)
      gsub(/TROUPE_[A-Z]+ |alignas\([^)]*\) |\[\[[^]]*\]\] /, "", text)
      sub(/^ *(enum class|enum struct|class|struct|enum|union) +/, "", text)
      while (match(text, /^[A-Za-z0-9_]+::/)) text = substr(text, RLENGTH + 1)  # struct engine::impl {
      name = text; sub(/[^A-Za-z0-9_].*/, "", name)
      rest = substr(text, length(name) + 1)
      if (name == "") next
      if (rest ~ /^ *(:[^:][^;{]*)?;/) { at[++n] = place; of[n] = name; in_layer[n] = level[layer]; in_file[n] = file }
      else if (rest ~ /\{/) {  # on this line: a definition, be it with bases
        here[file, name] = 1
        if (!(name in lowest) || level[layer] < lowest[name]) lowest[name] = level[layer]
      }
    }
    END {
      for (i = 1; i <= n; i++)
        if (of[i] in lowest && lowest[of[i]] > in_layer[i] && !((in_file[i], of[i]) in here))
          print at[i] ": " of[i] ", of " order[lowest[of[i]]] "/"
    }')

((faults == 0)) || { echo "$faults places break the layers"; exit 1; }
echo "includes and forward declarations respect the layers"
