#!/usr/bin/env bash
# Runs every test of one test program in a process of its own, one more at a time than there are processors, those with real
# agents (`real_…`) two at a time. A test that hangs is ended and has failed. Called by tests/run.sh.
#
#   tests/each.sh PROGRAM [NAME]
#
# A real agent can be too slow, or lose an answer by itself: a test of one that fails is tried once more, visibly, and
# must hold then as it is.
#
# Adds a line `ok|FAILED|left-out MILLISECONDS NAME` per test to the file $CODEMIE_TEST_RESULTS names. A process each,
# because that is how a stable toolchain can tell how long a test took.
set -euo pipefail

program=$1
limit=${CODEMIE_TEST_LIMIT:-300}
[ -z "${CODEMIE_TEST_FULL:-}" ] || limit=$((limit * 4))

try() {
    CODEMIE_TEST_NAME=$1 timeout --kill-after=5 "$limit" "$program" --exact "$1" --include-ignored --nocapture \
        </dev/null >"$2" 2>&1
}

one() {
    local name=$1 log status=ok start millis
    log=$(mktemp)
    start=${EPOCHREALTIME/./}
    try "$name" "$log" || status=FAILED
    if [ $status = FAILED ] && [[ $name == real_* ]]; then
        {
            echo "failed once, tried again: $name"
            sed 's/^/    /' "$log"
        } >"$log.report"
        cat "$log.report"
        status=ok
        try "$name" "$log" || status=FAILED
    fi
    millis=$(((${EPOCHREALTIME/./} - start) / 1000))
    if [ $status = ok ] && grep -qF "left out: $name:" "$log"; then
        status=left-out
    fi
    # One write, so that tests that end together do not mix their lines.
    {
        printf '%-8s %7d ms  %s\n' "$status" "$millis" "$name"
        if [ $status = FAILED ]; then
            sed 's/^/    /' "$log"
        else
            grep '^left out: ' "$log" | sed 's/^/    /' || true
        fi
    } >"$log.report"
    cat "$log.report"
    printf '%s %d %s\n' "$status" "$millis" "$name" >>"$CODEMIE_TEST_RESULTS"
    rm -f "$log" "$log.report"
}

if [ $# -gt 1 ]; then
    one "$2"
    exit 0
fi

# A program that cannot even list its tests ends this script here, with a failure.
list=$("$program" --list --format terse)
names() { sed -n 's/: test$//p' <<<"$1"; }
wanted=$(names "$list")
if [ -z "${CODEMIE_TEST_FULL:-}" ]; then
    # Ignored tests are the long ones.
    long=$(names "$("$program" --list --format terse --ignored)")
    wanted=$(awk 'NR == FNR { long[$0]; next } !($0 in long)' <(echo "$long") <(echo "$wanted"))
fi
those() { awk "$1 && /${CODEMIE_TEST_ONLY:-.}/ && !/${CODEMIE_TEST_NOT:-^$}/" <<<"$wanted"; }
each() { xargs -r -d '\n' -n 1 -P "$1" "$0" "$program"; }
# Many wait more than they compute.
those '!/^real_/' | each $(($(nproc) + 1))
# The support of these tests has as many turns (tests/it/support/agents.rs).
those '/^real_/' | each 2
