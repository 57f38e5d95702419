#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# with_nicd.sh TROUPE TEST ARGUMENT...: the test with a `troupe nicd` beside it, which performs what its processes offload.
set -u
troupe=$1
shift
name=unix:@nicd-tests-$$
folder=$(mktemp -d)
mkfifo "$folder/said"
"$troupe" nicd --listen "$name" >"$folder/said" &
nic=$!
trap 'kill "$nic" 2>/dev/null; rm -rf "$folder"' EXIT
read -r line <"$folder/said"
[ "$line" = "listens at $name" ] || exit 1
TROUPE_ENGINE_OFFLOAD=always TROUPE_ENGINE_NIC=$name "$@"
status=$?
kill -0 "$nic" || { echo "troupe nicd has ended"; exit 1; }
exit "$status"
