#!/bin/sh
# In the place of a C compiler and of ar(1), for targets that no C compiler here knows: writes an empty file wherever an
# object or an archive is asked for. That is enough for `cargo check`, which links nothing (tests/run.sh --full).
set -eu

# As ar: OPERATION ARCHIVE MEMBER…; the operation is letters alone.
case ${1:-} in
*[!a-zA-Z]* | '') ;;
*)
    : >"$2"
    exit 0
    ;;
esac
# As a compiler: what follows -o; without one nothing but an answer is wanted (the compiler's family, its version).
while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then
        : >"$2"
        exit 0
    fi
    shift
done
