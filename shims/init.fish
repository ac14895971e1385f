# Without its shim an agent is wrapped by an alias. A function of the user's own is left alone; `codemie doctor`
# tells of it.
for name in @AGENTS@
    if not test -x '@SHIMS@'/$name; and not functions -q $name
        alias $name "codemie $name"
    end
end
