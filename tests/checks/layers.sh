#!/usr/bin/env bash
# layers.sh [ROOT]: includes point downward only (memory < topology < protocols < actors < engine), CAF is included only in
# actors/, its tests and the example for CAF programs, and project includes are written from the root.
set -euo pipefail
cd "${1:-.}"

layers=(memory topology protocols actors engine)
faults=0
# report WHY: prints every line of its input as a fault.
report() {
  local line
  while IFS= read -r line; do
    printf '%s\n    %s\n' "$line" "$1"
    faults=$((faults + 1))
  done
}
# includes REGEX PATH...: file:line:text of the matching #include lines.
includes() {
  local pattern=$1 path paths=()
  shift
  for path in "$@"; do [[ -e $path ]] && paths+=("$path"); done
  ((${#paths[@]})) || return 0
  grep -rnE --include='*.hpp' --include='*.cpp' "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]$pattern" "${paths[@]}" || true
}

for ((i = 0; i < ${#layers[@]}; i++)); do
  for ((upper = i + 1; upper < ${#layers[@]}; upper++)); do
    report "${layers[i]}/ is below ${layers[upper]}/ and must not include it" \
      < <(includes "${layers[upper]}/" "${layers[i]}")
  done
  report "tests and benchmarks are not part of the library" < <(includes '(tests|bench|examples)/' "${layers[i]}")
  report "write the include from the root of the tree, as \"memory/types/types.hpp\"" < <(includes '\.\.?/' "${layers[i]}")
done

caf_free=()
for path in memory topology protocols engine bench/* tests/* examples/*; do
  [[ $path == tests/actors || $path == examples/05_* || $path == bench/scheduler_* ]] || caf_free+=("$path")
done
report "CAF is for actors/, its tests and benchmark, and examples/05_* only" < <(includes 'caf/' "${caf_free[@]}")

((faults == 0)) || { echo "$faults includes break the layers"; exit 1; }
echo "the includes respect the layers"
