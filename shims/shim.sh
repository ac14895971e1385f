#!/bin/sh
# codemie-shim-v1
# Stands in for @NAME@ where the file system has no symlinks. The line above is how codemie knows it is no agent.

codemie='@CODEMIE@'
if [ ! -x "$codemie" ]; then
    codemie=$(command -v codemie) || codemie=
fi
if [ -n "$codemie" ]; then
    exec "$codemie" @NAME@ "$@"
fi

# codemie is gone: the agent runs all the same. The first one on PATH that is no shim of ours is it.
real=
old_ifs=$IFS
IFS=:
set -f
for folder in $PATH; do
    candidate=${folder:-.}/@NAME@
    if [ ! -f "$candidate" ] || [ ! -x "$candidate" ]; then
        continue
    fi
    second_line=
    { read -r _ && read -r second_line; } <"$candidate" || :
    if [ "$second_line" != '# codemie-shim-v1' ]; then
        real=$candidate
        break
    fi
done
IFS=$old_ifs

if [ -z "$real" ]; then
    echo "codemie: neither codemie nor the real @NAME@ was found on PATH" >&2
    exit 127
fi
exec "$real" "$@"
