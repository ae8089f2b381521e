#!/bin/sh
# Runs commands over copies of valid and damaged fixtures, in a temporary folder, and prints each exit code.
kseg=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
fixtures=$PWD/fixtures
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder" || exit 1
# copy FIXTURE NAME: Kafka's files of a fixture, without the notes about them.
copy() {
    cp -R "$fixtures/$1" "$2" && rm -f "$2/ORIGIN" "$2"/*.jsonl "$2"/*.json
}
show() {
    printf '\n$ kseg %s\n' "$*"
    "$kseg" "$@"
    printf '(exit code %s)\n' $?
}
copy segments/4.3.0-v2-none-transactions payments-0
copy segments/4.3.0-v2-none-headers orders-0
copy segments/0.8.2.2-v0-lz4 old-0
log=00000000000000000000.log
show --version
show dump --columns base_offset,flags payments-0/$log
show dump --deep --limit 3 orders-0/$log
show convert v0-to-v2 old-0 new-0
show dump --deep --limit 3 new-0/$log
show validate payments-0 new-0
for rule in crc-mismatch invalid-size lost-bytes malformed-record truncated-tail; do
    copy findings/$rule $rule-0
    show validate $rule-0
done
show repair crc-mismatch-0 repaired-0
show rules crc-mismatch
exit 0
