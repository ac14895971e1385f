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
