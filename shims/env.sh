# codemie: the shims come first on PATH, so that an agent called by its own name is wrapped.
# Sourced by sh, dash, bash, zsh and ksh, any number of times.
_codemie_shims='@SHIMS@'
_codemie_bin='@BIN@'

case ":${PATH-}:" in
    *:"$_codemie_bin":*) ;;
    *) PATH="$_codemie_bin${PATH:+:$PATH}" ;;
esac

# There but not first, because another start-up file put its own folder in front: moved, not added again.
case ":$PATH:" in
    :"$_codemie_shims":*) ;;
    *:"$_codemie_shims":*)
        _codemie_rest=":$PATH:"
        _codemie_rest="${_codemie_rest%%:"$_codemie_shims":*}:${_codemie_rest#*:"$_codemie_shims":}"
        PATH="$_codemie_shims${_codemie_rest%:}"
        unset _codemie_rest
        ;;
    *) PATH="$_codemie_shims:$PATH" ;;
esac

export PATH
unset _codemie_shims _codemie_bin

# Completions, where the installer put them. zsh looks for functions in folders, bash reads the file at the first Tab.
if [ -n "${ZSH_VERSION-}" ]; then
    if [ -r '@COMPLETIONS@'/_codemie ]; then
        _codemie_completions='@COMPLETIONS@'
        # In quotes, because other shells have to read over it.
        eval '(( ${fpath[(Ie)$_codemie_completions]} )) || fpath=("$_codemie_completions" $fpath)
            if (( ${+functions[compdef]} )); then autoload -Uz _codemie && compdef _codemie codemie; fi'
        unset _codemie_completions
    fi
elif [ -n "${BASH_VERSION-}" ] && [ -r '@COMPLETIONS@'/codemie.bash ]; then
    case $- in
        *i*)
            # shellcheck disable=SC1091 # written by the installer
            # 124: the completion has been replaced, ask again.
            _codemie_load() { . '@COMPLETIONS@'/codemie.bash && return 124; }
            # shellcheck disable=SC3044 # bash alone comes here
            complete -F _codemie_load codemie
            ;;
    esac
fi
