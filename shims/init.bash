# Without its shim an agent is wrapped by an alias. An alias or function of the user's own is left alone;
# `codemie doctor` tells of it.
# shellcheck disable=SC2043 # the placeholder becomes a list
for _codemie_name in @AGENTS@; do
    if [ ! -x '@SHIMS@'/"$_codemie_name" ] && ! alias "$_codemie_name" >/dev/null 2>&1 &&
        ! declare -F "$_codemie_name" >/dev/null; then
        # shellcheck disable=SC2139 # the name is meant to be filled in now
        alias "$_codemie_name=codemie $_codemie_name"
    fi
done
unset _codemie_name
