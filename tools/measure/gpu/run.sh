#!/bin/sh
# What a lent GPU is asked in ten minutes, without a network: sh tools/measure/gpu/run.sh WHEELS OUT [--tiny]
#
# installs from the folder WHEELS what the machine lacks, runs tests/gpu (90 s at most), then the
# benchmark; all that is known so far is in OUT, whenever it is cut off.
set -u
wheels=$1 out=$2
shift 2
mkdir -p "$out"
python3 -m pip install --quiet --no-deps --no-index --find-links "$wheels" "$wheels"/*.whl || exit 1
timeout 90 python3 -m pytest -q tests/gpu >"$out/tests.log" 2>&1
echo "tests/gpu: exit code $? ($(tail -n 1 "$out/tests.log"))"
exec python3 -m tools.measure.gpu -o "$out" --most 440 "$@"
