# Without its shim an agent is wrapped by an alias. An alias or function of the user's own is left alone;
# `codemie doctor` tells of it.
for _codemie_name in @AGENTS@; do
    if [[ ! -x '@SHIMS@'/$_codemie_name ]] && (( ! ${+aliases[$_codemie_name]} )) &&
        (( ! ${+functions[$_codemie_name]} )); then
        alias "$_codemie_name=codemie $_codemie_name"
    fi
done
unset _codemie_name
