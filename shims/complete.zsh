# Completions can be registered once compinit has run. Not every .zshrc runs it, and some run it after this line: what is missing
# at the first prompt is made up for then. Shells without a prompt need none.
if (( ${+functions[compdef]} )); then
    _codemie_complete
    unfunction _codemie_complete
elif [[ -o interactive ]]; then
    _codemie_first_prompt() {
        add-zsh-hook -d precmd _codemie_first_prompt
        # -i: folders that others can write to are passed over, not asked about.
        (( ${+functions[compdef]} )) || { autoload -Uz compinit && compinit -i }
        _codemie_complete
        unfunction _codemie_complete _codemie_first_prompt
    }
    autoload -Uz add-zsh-hook && add-zsh-hook precmd _codemie_first_prompt
else
    unfunction _codemie_complete
fi
