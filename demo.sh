#!/bin/sh
# Runs commands over the files of `kseg demo`, in a temporary folder, and prints each exit code. Fails if one is not as expected:
# 1 is damage that was found, or records that are lost.
kseg=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder" || exit 1
show() {
    expected=$1 && shift
    printf '\n$ kseg %s\n' "$*"
    "$kseg" "$@"
    code=$?
    printf '(exit code %s)\n' $code
    test $code -eq "$expected" || { echo "demo: expected exit code $expected" >&2 && exit 1; }
}
show 0 --version
show 0 demo files
cd files || exit 1
show 0 dump --deep --limit 3 kafka-logs/clicks-2
show 0 stats old-logs/orders-0
show 0 convert v0-to-v2 old-logs/orders-0 new-0
show 0 dump --deep --limit 3 new-0
show 1 validate kafka-logs
show 1 repair kafka-logs/orders-0 repaired-0
show 1 validate repaired-0
show 1 doctor kafka-logs
show 0 rules crc-mismatch
