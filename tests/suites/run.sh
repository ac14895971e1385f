#!/usr/bin/env bash
# Runs the own test suites of pexpect and ptyprocess, bare and through codemie, and compares.
#
#   tests/suites/run.sh --install FOLDER  downloads them
#   tests/suites/run.sh CODEMIE FOLDER    runs them; FOLDER has the results
#
# Fails if a test fails through codemie that passes bare, unless inherent.txt names it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
suites="ptyprocess-0.7.0 pexpect-4.9.0"
pytest=pytest==9.2.0

install_suites() {
    [ -e "$folder/ready" ] && return 0
    local suite
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install --quiet "$pytest"
    for suite in $suites; do
        "$folder/venv/bin/pip" download --quiet --no-deps --no-binary :all: --dest "$folder" "${suite%-*}==${suite##*-}"
        tar -xzf "$folder/$suite.tar.gz" -C "$folder"
        "$folder/venv/bin/pip" install --quiet "$folder/$suite.tar.gz"
    done
    : >"$folder/ready"
}

# The tests that fail, one per line.
#   failing SUITE BINARY [TESTS…]    BINARY is empty for a bare run
failing() {
    local suite=$1 binary=$2
    shift 2
    (
        cd "$folder/$suite"
        # PATH: some of the tests start python by its name. The tests of sockets start no program on a terminal, and wait for
        # ever if their one port is taken.
        HOME=$folder/home CODEMIE_HOME=$folder/home/.codemie CODEMIE_QUIET=1 CODEMIE_UNDER_TEST=$binary \
            PYTHONPATH=$here PATH=$folder/venv/bin:$PATH \
            timeout 1200 python -m pytest -p through_codemie -q -rfE --ignore-glob='*test_socket*' "${@:-tests}" </dev/null >"$folder/last.txt" 2>&1 || true
    )
    [ $# -gt 0 ] || cp "$folder/last.txt" "$folder/$suite-$([ -z "$binary" ] && echo bare || echo codemie).txt"
    if ! grep -qE '[0-9]+ (passed|failed)' "$folder/last.txt"; then
        echo "the suite did not run, see $folder/last.txt"
    fi
    sed -nE 's/^(FAILED|ERROR) ([^ ]+).*/\2/p' "$folder/last.txt" | sort
}

if [ "$1" = --install ]; then
    install_suites
    exit
fi
codemie=$(readlink -f "$1")
mkdir -p "$folder/home"
worse=0
for suite in $suites; do
    bare=$(failing "$suite" "")
    wrapped=$(failing "$suite" "$codemie")
    for test in $wrapped; do
        if grep -qxF -- "$test" "$here/inherent.txt" || grep -qxF -- "$test" <<<"$bare"; then
            continue
        fi
        # Some of the tests race with the end of their child, which takes a few milliseconds longer: one pass in five shows that
        # it can pass.
        passes=
        for _ in 1 2 3 4 5; do
            [ -n "$passes" ] || [ -n "$(failing "$suite" "$codemie" "$test")" ] || passes=yes
        done
        if [ -z "$passes" ]; then
            echo "$suite: fails through codemie alone: $test"
            worse=1
        fi
    done
    echo "$suite: bare $(wc -w <<<"$bare") failed, through codemie $(wc -w <<<"$wrapped")"
done
exit "$worse"
