//! Every flag and subcommand of Claude Code 2.1.197 and 2.1.325, the hidden ones too: from `claude --help`, and from the option
//! table of the program itself. A flag missing here only means that no id is added.

/// How many of the following arguments a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arity {
    None,
    /// The next argument, whatever it looks like.
    Required,
    /// The next argument, unless it looks like a flag.
    Optional,
    /// The next argument, and all after it up to one that looks like a flag.
    Variadic,
}

/// What a flag means for finding the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Plain,
    /// Known, but never tried together with an added `--session-id`.
    Doubtful,
    Print,
    /// The program does something else and exits.
    Exits,
    NotPersistent,
    Continue,
    Resume,
    LooksUp,
    Fork,
    SessionId,
    Elsewhere,
}

#[derive(Debug)]
pub(super) struct Flag {
    names: &'static [&'static str],
    pub(super) arity: Arity,
    pub(super) meaning: Meaning,
}

pub(super) fn find(name: &[u8]) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.names.iter().any(|known| known.as_bytes() == name))
}

const fn flag(names: &'static [&'static str], arity: Arity, meaning: Meaning) -> Flag {
    Flag { names, arity, meaning }
}

use Arity::{None, Optional, Required, Variadic};
use Meaning::{
    Continue, Doubtful, Elsewhere, Exits, Fork, LooksUp, NotPersistent, Plain, Print, Resume, SessionId,
};

static FLAGS: &[Flag] = &[
    flag(&["--add-dir"], Variadic, Plain),
    flag(&["--advisor"], Required, Plain),
    flag(&["--agent"], Required, Plain),
    flag(&["--agent-color"], Required, Doubtful),
    flag(&["--agent-id"], Required, Doubtful),
    flag(&["--agent-name"], Required, Doubtful),
    flag(&["--agent-type"], Required, Doubtful),
    flag(&["--agents"], Required, Plain),
    flag(&["--allow-dangerously-skip-permissions"], None, Plain),
    flag(&["--allowedTools", "--allowed-tools"], Variadic, Plain),
    flag(&["--append-system-prompt"], Required, Plain),
    flag(&["--append-system-prompt-file"], Required, Plain),
    flag(&["--autocompact"], Required, Plain),
    flag(&["--ax-screen-reader"], None, Plain),
    flag(&["--bare"], None, Plain),
    flag(&["--betas"], Variadic, Plain),
    flag(&["--brief"], None, Plain),
    flag(&["--channels"], Variadic, Plain),
    flag(&["--chrome"], None, Plain),
    flag(&["--cloud", "--remote"], Optional, Elsewhere),
    flag(&["-c", "--continue"], None, Continue),
    flag(&["--cowork"], None, Doubtful),
    flag(&["--dangerously-load-development-channels"], Variadic, Plain),
    flag(&["--dangerously-skip-permissions"], None, Plain),
    flag(&["-d", "--debug"], Optional, Plain),
    flag(&["--debug-file"], Required, Plain),
    flag(&["-d2e", "--debug-to-stderr"], None, Plain),
    flag(&["--deep-link-cwd-b64"], Required, Doubtful),
    flag(&["--deep-link-last-fetch"], Required, Doubtful),
    flag(&["--deep-link-origin"], None, Doubtful),
    flag(&["--deep-link-repo"], Required, Doubtful),
    // The conversation opens in another program.
    flag(&["--desktop"], None, Elsewhere),
    flag(&["--disable-slash-commands"], None, Plain),
    flag(&["--disallowedTools", "--disallowed-tools"], Variadic, Plain),
    flag(&["--effort"], Required, Plain),
    flag(&["--enable-auth-status"], None, Plain),
    flag(&["--enable-auto-mode"], None, Plain),
    flag(&["--environment"], Required, Elsewhere),
    flag(&["--exclude-dynamic-system-prompt-sections"], None, Plain),
    flag(&["--fallback-model"], Required, Plain),
    flag(&["--file"], Variadic, Plain),
    flag(&["--fork-session"], None, Fork),
    flag(&["--forward-subagent-text"], None, Plain),
    flag(&["--from-pr"], Optional, LooksUp),
    flag(&["-h", "--help"], None, Exits),
    flag(&["--ide"], None, Plain),
    flag(&["--include-hook-events"], None, Plain),
    flag(&["--include-partial-messages"], None, Plain),
    flag(&["--init"], None, Doubtful),
    flag(&["--init-only"], None, Exits),
    flag(&["--input-format"], Required, Plain),
    flag(&["--json-schema"], Required, Plain),
    flag(&["--maintenance"], None, Doubtful),
    flag(&["--managed-settings"], Required, Doubtful),
    flag(&["--max-budget-usd"], Required, Plain),
    flag(&["--max-thinking-tokens"], Required, Plain),
    flag(&["--max-turns"], Required, Plain),
    flag(&["--mcp-config"], Variadic, Plain),
    flag(&["--model"], Required, Plain),
    flag(&["-n", "--name"], Required, Plain),
    flag(&["--no-chrome"], None, Plain),
    flag(&["--no-session-persistence"], None, NotPersistent),
    flag(&["--output-format"], Required, Plain),
    flag(&["--parent-session-id"], Required, Doubtful),
    flag(&["--permission-mode"], Required, Plain),
    flag(&["--permission-prompt-tool"], Required, Plain),
    flag(&["--permission-prompts"], Required, Plain),
    flag(&["--plan-mode-instructions"], Required, Plain),
    flag(&["--plan-mode-required"], None, Doubtful),
    flag(&["--plugin-dir"], Required, Plain),
    flag(&["--plugin-dir-no-mcp"], Required, Plain),
    flag(&["--plugin-url"], Required, Plain),
    flag(&["--prefill"], Required, Plain),
    flag(&["--prefill-b64"], Required, Plain),
    flag(&["-p", "--print"], None, Print),
    flag(&["--prompt-suggestions"], Optional, Plain),
    flag(&["--remote-control", "--rc"], Optional, Doubtful),
    flag(&["--remote-control-session-name-prefix"], Required, Doubtful),
    flag(&["--replay-user-messages"], None, Plain),
    flag(&["--reply-on-resume"], None, Doubtful),
    flag(&["--restricted"], None, Plain),
    flag(&["-r", "--resume"], Optional, Resume),
    flag(&["--resume-session-at"], Required, Doubtful),
    flag(&["--rewind-files"], Required, Exits),
    flag(&["--safe-mode"], None, Plain),
    flag(&["--sdk-url"], Required, Elsewhere),
    flag(&["--session-id"], Required, SessionId),
    flag(&["--session-mirror"], None, Doubtful),
    flag(&["--setting-sources"], Required, Plain),
    flag(&["--settings"], Required, Plain),
    flag(&["--strict-mcp-config"], None, Plain),
    flag(&["--system-prompt"], Required, Plain),
    flag(&["--system-prompt-file"], Required, Plain),
    flag(&["--system-prompt-snapshot"], Required, Plain),
    flag(&["--task-budget"], Required, Plain),
    flag(&["--team-name"], Required, Doubtful),
    flag(&["--teammate-mode"], Required, Doubtful),
    flag(&["--teleport"], Optional, Elsewhere),
    flag(&["--thinking"], Required, Plain),
    flag(&["--thinking-display"], Required, Plain),
    // The conversation runs in a tmux server, in a process that is not our child. `--tmux=classic` is read off the raw
    // arguments and is unknown to the option parser, which comes to the same.
    flag(&["--tmux"], None, Elsewhere),
    flag(&["--tools"], Variadic, Plain),
    flag(&["--verbose"], None, Plain),
    flag(&["-v", "--version"], None, Exits),
    flag(&["--workload"], Required, Plain),
    // Moves to another folder before the conversation begins.
    flag(&["-w", "--worktree"], Optional, Doubtful),
];

/// Subcommands, wherever options leave them as the first operand.
pub(super) const SUBCOMMANDS: &[&[u8]] = &[
    b"agents",
    b"auth",
    b"auto-mode",
    b"doctor",
    b"gateway",
    b"import",
    b"import-conversations",
    b"install",
    b"mcp",
    b"migrate-installer",
    b"plugin",
    b"plugins",
    b"project",
    b"purge",
    b"rc",
    b"remote-control",
    b"sandbox",
    b"setup-token",
    b"ultrareview",
    b"update",
    b"upgrade",
    b"workspace-trust",
    b"worktree-hook",
];

/// Words that, as the very first argument, never reach the option parser.
pub(super) const FIRST_WORDS: &[&[u8]] = &[
    b"--bg-pty-host",
    b"--bg-spare",
    b"--chrome-native-host",
    b"--claude-in-chrome-mcp",
    b"--computer-use-mcp",
    b"--daemon-worker",
    b"--preload",
    b"attach",
    b"bridge",
    b"daemon",
    b"kill",
    b"logs",
    b"rc",
    b"remote",
    b"remote-control",
    b"respawn",
    b"rm",
    b"stop",
    b"sync",
];
