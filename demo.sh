#!/bin/sh
# Runs commands over the files of `kseg demo`, in a temporary folder, and prints each exit code.
kseg=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder" || exit 1
show() {
    printf '\n$ kseg %s\n' "$*"
    "$kseg" "$@"
    printf '(exit code %s)\n' $?
}
show --version
show demo files
cd files || exit 1
show dump --deep --limit 3 kafka-logs/clicks-2
show stats old-logs/orders-0
show convert v0-to-v2 old-logs/orders-0 new-0
show dump --deep --limit 3 new-0
show validate kafka-logs
show repair kafka-logs/orders-0 repaired-0
show validate repaired-0
show doctor kafka-logs
show rules crc-mismatch
exit 0
