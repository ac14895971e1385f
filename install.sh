#!/bin/sh
# Installs codemie for this user, and takes it away again. POSIX sh; run it from a checkout, or with --binary.
#
# Everything is in functions and main is called on the last line, so that a file cut short does nothing.
# Whatever is made is written to a receipt first or at once; --uninstall undoes exactly what stands there, and takes away
# what codemie notes for itself. Sessions and settings stay.

usage() {
    cat <<'USAGE'
Usage: ./install.sh [OPTIONS]

Builds codemie from this checkout with cargo, or takes a given binary; puts it into PREFIX/bin, its shims and env
files into $CODEMIE_HOME (default ~/.codemie), and one marked line into each shell start-up file that exists.

  --prefix DIR       where bin/codemie goes (default ~/.local)     CODEMIE_INSTALL_PREFIX
  --binary FILE      install this file instead of building         CODEMIE_INSTALL_BINARY
  --sha256 HEX       its checksum, to be sure which file it is     CODEMIE_INSTALL_SHA256
  --yes              ask nothing                                   CODEMIE_INSTALL_YES=1
  --no-modify-path   leave the shell start-up files alone          CODEMIE_INSTALL_NO_MODIFY_PATH=1
  --no-shims         make no shims                                 CODEMIE_INSTALL_NO_SHIMS=1
  --dry-run          say what would be done, and do nothing        CODEMIE_INSTALL_DRY_RUN=1
  --uninstall        remove what an earlier run installed          CODEMIE_INSTALL_UNINSTALL=1
  --purge            with --uninstall: sessions and settings, too  CODEMIE_INSTALL_PURGE=1
  --help             this text
USAGE
}

say() {
    printf '%s\n' "$*"
}

fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

# Announces a step; false in a dry run, when the step is not to be taken.
step() {
    if [ -n "$dry_run" ]; then
        say "would $*"
        return 1
    fi
    say "$*"
}

# ---------------------------------------------------------------------------------------------------------------
# Options

read_options() {
    prefix=${CODEMIE_INSTALL_PREFIX-}
    binary=${CODEMIE_INSTALL_BINARY-}
    sha256=${CODEMIE_INSTALL_SHA256-}
    assume_yes=$(flag "${CODEMIE_INSTALL_YES-}")
    modify_path=1
    [ -z "$(flag "${CODEMIE_INSTALL_NO_MODIFY_PATH-}")" ] || modify_path=
    shims=1
    [ -z "$(flag "${CODEMIE_INSTALL_NO_SHIMS-}")" ] || shims=
    dry_run=$(flag "${CODEMIE_INSTALL_DRY_RUN-}")
    uninstall=$(flag "${CODEMIE_INSTALL_UNINSTALL-}")
    purge=$(flag "${CODEMIE_INSTALL_PURGE-}")
    while [ $# -gt 0 ]; do
        case $1 in
            --prefix | --binary | --sha256)
                [ $# -ge 2 ] || bad_usage "$1 needs a value"
                set_value "$1" "$2"
                shift
                ;;
            --prefix=* | --binary=* | --sha256=*) set_value "${1%%=*}" "${1#*=}" ;;
            --yes | -y) assume_yes=1 ;;
            --no-modify-path) modify_path= ;;
            --no-shims) shims= ;;
            --dry-run) dry_run=1 ;;
            --uninstall) uninstall=1 ;;
            --purge) purge=1 ;;
            --help | -h)
                usage
                exit 0
                ;;
            *) bad_usage "there is no option $1" ;;
        esac
        shift
    done
}

flag() {
    case $1 in
        '' | 0 | no | false) ;;
        *) echo 1 ;;
    esac
}

set_value() {
    case $1 in
        --prefix) prefix=$2 ;;
        --binary) binary=$2 ;;
        --sha256) sha256=$2 ;;
    esac
}

bad_usage() {
    printf 'install.sh: %s (try --help)\n' "$1" >&2
    exit 2
}

find_places() {
    [ -n "${HOME-}" ] || fail "HOME is not set; set it to your home folder"
    refuse_foreign_home
    prefix=$(absolute "${prefix:-$HOME/.local}")
    home=$(absolute "${CODEMIE_HOME:-$HOME/.codemie}")
    case "$prefix$home$HOME" in
        *'
'*) fail "a folder with a line break in its name is more than start-up files can bear" ;;
    esac
    program=$prefix/bin/codemie
    receipt=$home/receipt
    lock=$HOME/.codemie-installing
    CODEMIE_HOME=$home
    export CODEMIE_HOME
}

# With root's rights anything in another user's home could be a link to a file of root's, and what is made there is not theirs.
refuse_foreign_home() {
    if [ "$(id -u)" != 0 ] || [ ! -d "$HOME" ]; then return 0; fi
    # shellcheck disable=SC2012 # stat(1) has other options on other systems, and the name is not read
    owner=$(ls -ldn -- "$HOME/." | { read -r _ _ owner _ && printf '%s\n' "$owner"; })
    [ "$owner" = 0 ] ||
        fail "HOME is $HOME, which belongs to another user; run this as that user, or set HOME to root's own (sudo -H)"
}

absolute() {
    case $1 in
        /*) printf '%s\n' "$1" ;;
        *) printf '%s\n' "$PWD/$1" ;;
    esac
}

# ---------------------------------------------------------------------------------------------------------------
# One installer at a time: two would both find a start-up file without our line, and both add it

# A link is made by one alone, together with what it says: the number of its maker, so that one that was killed keeps nobody
# waiting.
take_lock() {
    [ -z "$dry_run" ] || return 0
    tries=0
    until ln -s "codemie-installer:$$" "$lock" 2>/dev/null; do
        # Nothing can be made here: then nothing will be written here either. (Or the lock has just been given back.)
        [ -L "$lock" ] || [ -w "$HOME" ] || return 0
        if is_stale; then drop_stale_lock; fi
        tries=$((tries + 1))
        [ "$tries" -le 120 ] || fail "another installer is at work; if there is none, remove $lock and $lock.stale"
        sleep 1
    done
    locked=1
}

is_stale() {
    maker=$(readlink -- "$lock" 2>/dev/null) || return 1
    maker=${maker#codemie-installer:}
    case $maker in
        '' | *[!0-9]*) return 1 ;;
    esac
    ! kill -0 "$maker" 2>/dev/null
}

# By one alone, too: another could take away what a third has just made.
drop_stale_lock() {
    ln -s "codemie-installer:$$" "$lock.stale" 2>/dev/null || return 0
    if is_stale; then rm -f -- "$lock"; fi
    rm -f -- "$lock.stale"
}

give_lock() {
    [ -n "$locked" ] || return 0
    rm -f -- "$lock"
    locked=
}

# ---------------------------------------------------------------------------------------------------------------
# The receipt: one "KIND PATH" per line, in the order in which things were made

record() {
    if ! recorded "$1" "$2"; then
        printf '%s %s\n' "$1" "$2" >>"$receipt" || fail "cannot write $receipt"
    fi
}

recorded() {
    [ -f "$receipt" ] && grep -qxF -- "$1 $2" "$receipt"
}

# Makes a folder and those above it, and records the ones that were not there.
make_folder() {
    missing=
    folder=$1
    while [ ! -d "$folder" ]; do
        missing="$folder
$missing"
        folder=$(dirname -- "$folder")
    done
    [ -n "$missing" ] || return 0
    while IFS= read -r folder; do
        [ -n "$folder" ] || continue
        mkdir ${2:+-m "$2"} -- "$folder" || fail "cannot make $folder"
    done <<FOLDERS
$missing
FOLDERS
    while IFS= read -r folder; do
        [ -n "$folder" ] || continue
        record dir "$folder"
    done <<FOLDERS
$missing
FOLDERS
}

# Replaces a file of ours as a whole, or makes it: write_file FILE CONTENT.
write_file() {
    temporary=$1.codemie.$$
    printf '%s\n' "$2" >"$temporary" || fail "cannot write $temporary"
    if cmp -s "$temporary" "$1"; then
        rm -f -- "$temporary"
    else
        chmod 644 "$temporary" || fail "cannot set the mode of $temporary"
        record file "$1"
        mv -f -- "$temporary" "$1" || fail "cannot write $1"
    fi
    record file "$1"
    temporary=
}

# ---------------------------------------------------------------------------------------------------------------
# Installing

install() {
    confirm
    refuse_foreign_program
    obtain_binary
    take_lock
    if [ ! -d "$home" ] && step "make $home"; then make_folder "$home" 700; fi
    install_program
    install_completions
    install_env_files
    if [ -n "$shims" ]; then install_shims; fi
    if [ -n "$modify_path" ]; then install_lines; fi
    give_lock
    [ -z "$dry_run" ] || return 0
    finish
}

# Asks only where somebody sits who can answer.
confirm() {
    if [ -n "$assume_yes$dry_run" ] || [ ! -t 0 ]; then
        return 0
    fi
    say "codemie will be installed as $program, with its own files in $home."
    if [ -n "$modify_path" ]; then say "One marked line is added to each start-up file of your shells."; fi
    printf 'Go on? [Y/n] '
    read -r answer || answer=n
    case $answer in
        '' | y | Y | yes | Yes) ;;
        *) fail "nothing was changed" ;;
    esac
}

# A program of another origin is not ours to replace. One that says it is codemie, is: a lost receipt is no reason.
refuse_foreign_program() {
    if [ ! -e "$program" ] || recorded file "$program"; then
        return 0
    fi
    case $("$program" --version 2>/dev/null </dev/null || :) in
        "codemie "*) ;;
        *) fail "$program is there and is not this codemie; remove it, or choose another --prefix" ;;
    esac
}

obtain_binary() {
    if [ -n "$binary" ]; then
        [ -f "$binary" ] || fail "there is no file $binary"
        if [ -z "$sha256" ]; then
            # A file on this machine is known to who names it; one that was downloaded can be compared.
            sha256=$(sha256_of "$binary") || return 0
            say "sha256 of $binary: $sha256"
        fi
        verify "$binary"
        return 0
    fi
    [ -z "$sha256" ] || fail "--sha256 goes with --binary"
    checkout=$(cd "$(dirname -- "$script")" 2>/dev/null && pwd) || checkout=
    grep -q '^name = "codemie"$' "$checkout/Cargo.toml" 2>/dev/null ||
        fail "this is not a checkout of codemie; give --binary FILE"
    command -v cargo >/dev/null 2>&1 || fail "cargo is needed to build codemie; see https://rustup.rs"
    refuse_old_cargo
    target=$(absolute "${CARGO_TARGET_DIR:-$checkout/target}")
    binary=$target/dist/codemie
    if step "build codemie in $checkout"; then
        # From there: cargo reads its settings where it is started.
        (cd "$checkout" && cargo build --profile dist --locked --target-dir "$target") </dev/null ||
            fail "the build failed; see above"
        [ -f "$binary" ] || fail "cargo built no $binary; a build.target in cargo's settings may be why"
    fi
}

# An old cargo fails with words about editions and lock files, which name no way out.
refuse_old_cargo() {
    least=$(sed -n 's/^rust-version = "\([0-9.]*\)"$/\1/p' "$checkout/Cargo.toml" | head -n 1)
    found=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p')
    [ -n "$least" ] && [ -n "$found" ] || return 0
    if [ "${found%%.*}" -lt "${least%%.*}" ] ||
        { [ "${found%%.*}" -eq "${least%%.*}" ] && [ "${found#*.}" -lt "${least#*.}" ]; }; then
        fail "codemie needs Rust $least or newer, and cargo here is $found; run: rustup update stable"
    fi
}

install_program() {
    step "install $program" || return 0
    make_folder "$prefix/bin"
    temporary=$prefix/bin/.codemie.$$
    cp -- "$binary" "$temporary" || fail "cannot write $temporary"
    chmod 755 "$temporary" || fail "cannot set the mode of $temporary"
    # The copy is what will run, so the copy is what is checked.
    [ -z "$sha256" ] || verify "$temporary"
    "$temporary" --version >/dev/null 2>&1 </dev/null || fail "$binary does not run on this machine"
    record file "$program"
    if cmp -s "$temporary" "$program"; then
        rm -f -- "$temporary"
    else
        mv -f -- "$temporary" "$program" || fail "cannot write $program"
    fi
    temporary=
}

verify() {
    wanted=$(printf '%s' "$sha256" | tr 'A-F' 'a-f')
    found=$(sha256_of "$1") || fail "cannot check: none of sha256sum, shasum and openssl is here"
    [ "$found" = "$wanted" ] || fail "the checksum of $binary is $found, not $wanted; nothing was installed"
}

sha256_of() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum <"$1" | cut -c 1-64
    elif command -v shasum >/dev/null 2>&1; then
        shasum -a 256 <"$1" | cut -c 1-64
    elif command -v openssl >/dev/null 2>&1; then
        openssl dgst -sha256 -r <"$1" | cut -c 1-64
    else
        return 1
    fi
}

install_env_files() {
    step "write $home/env and $home/env.fish" || return 0
    content=$("$program" init bash --path-only) || fail "$program does not print its set-up"
    write_file "$home/env" "$content"
    content=$("$program" init fish --path-only) || fail "$program does not print its set-up"
    write_file "$home/env.fish" "$content"
}

# The env files have every shell find them.
install_completions() {
    step "write completions to $home/completions" || return 0
    make_folder "$home/completions" 700
    for shell in bash zsh fish; do
        case $shell in
            zsh) file=_codemie ;;
            *) file=codemie.$shell ;;
        esac
        content=$("$program" completions "$shell") || fail "$program does not print its completions"
        write_file "$home/completions/$file" "$content"
    done
}

install_shims() {
    step "make shims in $home/shims" || return 0
    make_folder "$home/shims" 700
    "$program" shim install >/dev/null || say "not every shim could be made; the rest is installed"
    for shim in "$home/shims"/*; do
        if is_our_shim "$shim"; then record shim "$shim"; fi
    done
}

# A symlink to a codemie, or a script with the marker.
is_our_shim() {
    if [ -L "$1" ]; then
        case $(readlink -- "$1") in
            */codemie) return 0 ;;
        esac
        return 1
    fi
    [ -f "$1" ] && head -n 2 -- "$1" | grep -qxF '# codemie-shim-v1'
}

install_lines() {
    line=$(start_up_line)
    found=
    while IFS= read -r file; do
        if [ ! -f "$file" ]; then
            continue
        fi
        found=1
        if grep -qxF -- "$line" "$file"; then
            if [ -z "$dry_run" ] && ! recorded rc-no-newline "$file"; then record rc "$file"; fi
        elif [ ! -w "$file" ]; then
            say "leave $file alone: it is not writable"
        elif step "add a line to $file"; then
            add_line "$file"
        fi
    done <<FILES
$(start_up_files)
FILES
    fish=${XDG_CONFIG_HOME:-$HOME/.config}/fish
    if [ -d "$fish" ]; then
        found=1
        install_fish_file "$fish/conf.d/codemie.fish"
    fi
    if [ -z "$found" ]; then
        say "No start-up file of a shell was found. Add this line to yours:"
        say "  $line"
    fi
}

start_up_files() {
    for name in .profile .bash_profile .bash_login .bashrc; do
        printf '%s\n' "$HOME/$name"
    done
    for name in .zshenv .zprofile .zshrc; do
        printf '%s\n' "${ZDOTDIR:-$HOME}/$name"
    done
}

# A shell whose env file is gone must still start, hence the test.
start_up_line() {
    quoted=$(quote "$home/env")
    printf 'if [ -r %s ]; then . %s; fi # added by the installer of codemie\n' "$quoted" "$quoted"
}

quote() {
    printf "'%s'\n" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

# Appending leaves the file's mode, owner and links as they are.
add_line() {
    if [ -s "$1" ] && [ -n "$(tail -c 1 -- "$1")" ]; then
        record rc-no-newline "$1"
        printf '\n%s\n' "$line" >>"$1" || fail "cannot write $1"
    else
        record rc "$1"
        printf '%s\n' "$line" >>"$1" || fail "cannot write $1"
    fi
}

install_fish_file() {
    if [ -e "$1" ] && ! recorded file "$1" && ! grep -q 'added by the installer of codemie' "$1"; then
        say "leave $1 alone: it is not from this installer"
        return 0
    fi
    step "write $1" || return 0
    make_folder "$(dirname -- "$1")"
    quoted=$(printf '%s' "$home/env.fish" | sed "s/[\\\\']/\\\\&/g")
    write_file "$1" "test -r '$quoted'; and source '$quoted' # added by the installer of codemie"
}

finish() {
    say ""
    # What new shells will see is what is looked at.
    if [ -n "$users_locale" ]; then LC_ALL=$users_locale; else unset LC_ALL; fi
    if [ -n "$shims" ]; then PATH=$home/shims:$prefix/bin:$PATH; else PATH=$prefix/bin:$PATH; fi
    export PATH
    "$program" doctor </dev/null || say "codemie is installed; the findings above tell what is left to do."
    say ""
    if [ -n "$modify_path" ]; then
        say "Open a new shell, or run: . $(quote "$home/env")"
    else
        say "To use it, run: . $(quote "$home/env")"
    fi
    say "Tab completes commands and sessions in bash, fish, and in zsh where .zshrc runs compinit. Where it does not, or where"
    say "start-up files are not to be changed, \`codemie init SHELL\` prints what to evaluate in yours."
}

# ---------------------------------------------------------------------------------------------------------------
# Uninstalling

uninstall() {
    [ -f "$receipt" ] || fail "there is no $receipt, so nothing is known to be installed"
    if [ -n "$purge" ]; then confirm_purge; fi
    take_lock
    line=$(start_up_line)
    # Last made, first removed; folders at the very end, and only those that are empty then.
    made=$(sed '1!G;h;$!d' "$receipt") || fail "cannot read $receipt"
    while IFS= read -r entry; do
        kind=${entry%% *}
        path=${entry#* }
        case $kind in
            file) remove_file "$path" ;;
            shim) if is_our_shim "$path"; then remove_file "$path"; fi ;;
            rc | rc-no-newline) remove_line "$path" "$kind" ;;
        esac
    done <<MADE
$made
MADE
    # Versions of agents, noted by the doctor above and by runs since: nothing of the user's.
    for note in "$home/run/version-"*; do remove_file "$note"; done
    if [ -d "$home/run" ] && [ -z "$dry_run" ]; then rmdir -- "$home/run" 2>/dev/null || :; fi
    remove_file "$receipt"
    if [ -n "$purge" ] && step "remove $home with all sessions and settings"; then
        rm -rf -- "$home" || fail "cannot remove $home"
    fi
    while IFS= read -r entry; do
        kind=${entry%% *}
        path=${entry#* }
        if [ "$kind" = dir ] && [ -d "$path" ] && [ -z "$dry_run" ]; then
            rmdir -- "$path" 2>/dev/null || keep "$path"
        fi
    done <<MADE
$made
MADE
}

# Nothing brings them back. The receipt in it was found, so the folder is codemie's.
confirm_purge() {
    case "$home" in
        / | "$HOME" | "$HOME/") fail "$home holds more than codemie's files; it is not removed" ;;
    esac
    if [ -n "$assume_yes$dry_run" ]; then return 0; fi
    [ -t 0 ] || fail "--purge removes all sessions and settings in $home; add --yes where nobody can be asked"
    printf 'Remove %s with all sessions and settings? [y/N] ' "$home"
    read -r answer || answer=n
    case $answer in
        y | Y | yes | Yes) ;;
        *) fail "nothing was changed" ;;
    esac
}

# Sessions and settings are the user's own.
keep() {
    if [ "$1" = "$home" ]; then
        say "keep $1: your sessions and settings are in it; remove it yourself if you want none of them"
    else
        say "keep $1: it is not empty"
    fi
}

remove_file() {
    if [ -e "$1" ] || [ -L "$1" ]; then
        if step "remove $1"; then rm -f -- "$1" || say "cannot remove $1"; fi
    fi
}

# Takes our line, and the line break that was put before it, out of a start-up file; every other byte stays.
remove_line() {
    [ -f "$1" ] || return 0
    # A start-up file may be a symlink into a folder of dotfiles; the file behind it is replaced, not the link.
    file=$(readlink -f -- "$1") || file=$1
    count=$(grep -cxF -- "$line" "$file") || count=0
    [ "$count" -gt 0 ] || return 0
    step "remove a line from $1" || return 0
    temporary=$file.codemie.$$
    cp -p -- "$file" "$temporary" || fail "cannot write $temporary"
    grep -vxF -- "$line" "$file" >"$temporary" || :
    left=$(($(wc -c <"$file") - count * $(printf '%s\n' "$line" | wc -c)))
    if [ -n "$(tail -c 1 -- "$file")" ]; then
        drop_last_byte "$temporary" # grep ended a last line that had no end
    fi
    if [ "$2" = rc-no-newline ] && [ "$(tail -n 1 -- "$file")" = "$line" ]; then
        drop_last_byte "$temporary"
        left=$((left - 1))
    fi
    if [ "$(($(wc -c <"$temporary")))" -eq "$left" ]; then
        mv -f -- "$temporary" "$file" || fail "cannot write $file"
    else
        # Bytes that grep does not pass on (NUL): better a line too many than a file too few.
        rm -f -- "$temporary"
        say "cannot take the line out of $1; remove it by hand: $line"
    fi
    temporary=
}

drop_last_byte() {
    size=$(($(wc -c <"$1")))
    [ "$size" -gt 0 ] || return 0
    head -c "$((size - 1))" -- "$1" >"$1.less" && cat -- "$1.less" >"$1"
    rm -f -- "$1.less"
}

# ---------------------------------------------------------------------------------------------------------------

clean_up() {
    if [ -n "${temporary-}" ]; then
        rm -f -- "$temporary" "$temporary.less"
    fi
    give_lock
}

main() {
    if [ -n "${ZSH_VERSION-}" ]; then
        emulate sh
    fi
    set -u
    # What lies on PATH is nobody else's to change, however loose the caller's own mask is.
    umask go-w
    # Byte for byte, whatever the start-up files are written in.
    users_locale=${LC_ALL-}
    LC_ALL=C
    export LC_ALL
    temporary=
    locked=
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    read_options "$@"
    [ -z "$purge" ] || [ -n "$uninstall" ] || bad_usage "--purge goes with --uninstall"
    find_places
    if [ -n "$uninstall" ]; then
        uninstall
    else
        install
    fi
}

script=$0
main "$@"
