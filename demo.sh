#!/bin/sh
# Runs commands over valid and damaged fixtures, and prints each exit code.
kseg=$1
show() {
    printf '\n$ kseg %s\n' "$*"
    "$kseg" "$@"
    printf '(exit code %s)\n' $?
}
show --version
show dump fixtures/segments/4.3.0-v2-none-transactions/00000000000000000000.log
show dump --deep --limit 5 fixtures/segments/2.8.2-v0v1v2-mixed/00000000000000000000.log
show dump --deep --limit 2 --format jsonl fixtures/segments/4.3.0-v2-none-headers/00000000000000000000.log
show validate fixtures/segments/0.8.2.2-v0-lz4 fixtures/segments/4.3.0-v2-zstd
for rule in crc-mismatch invalid-size lost-bytes malformed-record; do
    show validate fixtures/findings/$rule
done
show validate fixtures/findings/truncated-tail/*.log
show validate --format jsonl fixtures/findings/crc-mismatch
show rules crc-mismatch
exit 0
