# codemie: the shims come first on PATH, so that an agent called by its own name is wrapped.
begin
    set -l shims '@SHIMS@'
    set -l bin '@BIN@'

    if not contains -- $bin $PATH
        set -gx PATH $bin $PATH
    end

    # There but not first, because another start-up file put its own folder in front: moved, not added again.
    if test "$PATH[1]" != "$shims"
        set -l rest
        for folder in $PATH
            if test "$folder" != "$shims"
                set -a rest $folder
            end
        end
        set -gx PATH $shims $rest
    end

    # Completions, where the installer put them; fish reads the file at the first Tab.
    if test -r '@COMPLETIONS@'/codemie.fish; and not contains -- '@COMPLETIONS@' $fish_complete_path
        set -g fish_complete_path '@COMPLETIONS@' $fish_complete_path
    end
end
