#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""schema_test.py ROOT PROGRAM: the JSON Schema takes every configuration of config/, and refuses what the program refuses."""
import copy
import json
import subprocess
import sys
import tomllib
from pathlib import Path

try:
    import jsonschema
except ImportError:
    print("skipped: there is no python3-jsonschema")
    sys.exit(77)

root, program = Path(sys.argv[1]), sys.argv[2]
schema = json.loads(subprocess.run([program, "generate", "schema"], check=True, capture_output=True, text=True).stdout)
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)
faults = []


def refused(document: dict) -> bool:
    return next(validator.iter_errors(document), None) is not None


files = sorted(f for f in (root / "config").rglob("*.toml") if f.parent.name != "machines")  # which are no configurations
for file in files:
    document = tomllib.loads(file.read_text())
    for error in validator.iter_errors(document):
        faults.append(f"{file.relative_to(root)}: {'.'.join(map(str, error.absolute_path))}: {error.message}")
    # A key that there is not, in every table.
    for table in document:
        wrong = copy.deepcopy(document)
        wrong[table]["nonsense"] = 1
        if not refused(wrong):
            faults.append(f"{file.relative_to(root)}: {table}.nonsense is taken")

# As the program says (tests/engine/configuration_test.cpp).
run = {"collective": "all_reduce"}
for wrong in (
    {"engin": {}}, {"engine": {"credits": 0}}, {"engine": {"credits": 65}}, {"engine": {"credits": "4"}}, {"engine": {"log_level": "loud"}},
    {"engine": {"deadline": "5"}}, {"engine": {"deadline": 5}}, {"engine": {"chunk_bytes": "1Q"}}, {"engine": {"chunk_bytes": -1}},
    {"engine": {"faults": {"drop": 1.5}}}, {"engine": {"choreography_of": {"all_redcue": "ring"}}}, {"engine": {"trace_routes": 1}},
    {"workload": {"ranks": 1025}}, {"workload": {"run": 3}}, {"workload": {"run": [{"sizes": [8]}]}},
    {"workload": {"run": [{"collective": "all_redcue"}]}}, {"workload": {"run": [{**run, "size": 8}]}},
    {"workload": {"run": [{**run, "sizes": []}]}}, {"workload": {"run": [{**run, "sizes": {"from": 8, "to": 64}}]}},
    {"workload": {"run": [{**run, "type": "f31"}]}}, {"workload": {"run": [{**run, "op": "plus"}]}},
    {"workload": {"run": [{**run, "counts": [-1]}]}}, {"study": {"sizes": "much"}}, {"study": {"slow": {"up 3": 0}}},
    {"study": {"hccl": {"device": "910"}}},
):
    if not refused(wrong):
        faults.append(f"{wrong} is taken")
for right in (
    {"engine": {"deadline": "none", "chunk_bytes": "1.5M", "choreography": "mine", "choreography_of": {"all_reduce": "mine"}}},
    {"workload": {"run": [{**run, "sizes": {"from": "8", "to": "64M", "factor": 4}}, {**run, "sizes": [8, "64K"], "counts": [[1, 0], [2, 3]]}]}},
    {"study": {"hardware": {"nic": {"bandwidth": "25 GB/s"}, "link.latency": "5us"}, "structure": {"radix": 16}, "skew": {"3": "100us"}}},
):
    for error in validator.iter_errors(right):
        faults.append(f"{right}: {error.message}")

for fault in faults:
    print(fault)
print(f"{len(files)} configurations, {len(faults)} faults")
sys.exit(1 if faults or len(files) < 20 else 0)
