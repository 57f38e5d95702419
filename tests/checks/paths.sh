#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# paths.sh [ROOT]: no file names a directory of the machine it was written on; the tree works wherever it is cloned.
set -euo pipefail
cd "${1:-.}"

machine_dirs='(^|[^[:alnum:]_./-])/(work|home|root|Users)/[[:alnum:]_.-]'
if grep -rnIE --exclude-dir=.git --exclude=.git --exclude-dir=build --exclude=paths.sh "$machine_dirs" .; then
  echo "the lines above name paths of one machine; make them relative to the tree"
  exit 1
fi
echo "no file names a path of one machine"
