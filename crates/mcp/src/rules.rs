//! What a caller may ask for. Pure, but for the look at folders.
//!
//! The caller may be an agent whose prompt somebody else wrote. What it asks for must stay within what the user allowed: a folder
//! of the project, arguments from a list, a text that is a message and nothing else.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::error::{ErrorCode, ToolError};
use super::scope::Caller;
use config::McpConfig;
use runtime::remote::protocol::MAX_FRAME;
use store::session::names;

/// A name, a key, a cursor: longer than any, short enough for a message.
const LONGEST_WORD: usize = 200;

/// The folder a session is to be started in, without symlinks and `..`.
pub fn folder(wanted: Option<&str>, caller: &Caller, config: &McpConfig) -> Result<PathBuf, ToolError> {
    let Some(wanted) = wanted else { return Ok(caller.folder.clone()) };
    let not_allowed = |why: String| {
        let next = format!(
            "leave cwd out, or name a folder in {}; the user may allow any with mcp.anyFolder",
            caller.project.display()
        );
        ToolError::new(ErrorCode::FolderNotAllowed, why, next)
    };
    let found = caller.folder.join(wanted).canonicalize().ok().filter(|folder| folder.is_dir());
    match found {
        Some(folder) if config.any_folder || caller.may_work_in(&folder) => Ok(folder),
        // Outside the project it is not said whether there is such a folder.
        Some(_) | None => Err(not_allowed(format!("{wanted:?} is no folder in the caller's project"))),
    }
}

/// Each argument must be in the user's list. A `*` alone stands for one value, which begins with no dash; at the end of a word
/// it stands for any end of that word.
pub fn arguments(args: &[String], config: &McpConfig) -> Result<(), ToolError> {
    let mut left = args;
    while let Some(first) = left.first() {
        let fits = |pattern: &String| matched(pattern, left);
        let Some(count) = config.allow_args.iter().filter_map(fits).max() else {
            let next = if config.allow_args.is_empty() {
                "leave args out; the user may allow some with mcp.allowArgs".to_owned()
            } else {
                format!("these are allowed (mcp.allowArgs): {}", config.allow_args.join(", "))
            };
            let message = format!("the argument {first:?} is not allowed");
            return Err(ToolError::new(ErrorCode::ArgumentNotAllowed, message, next));
        };
        left = &left[count..];
    }
    Ok(())
}

/// How many of the first arguments a pattern allows.
fn matched(pattern: &str, args: &[String]) -> Option<usize> {
    let words: Vec<&str> = pattern.split_whitespace().collect();
    let fits = |(word, arg): (&&str, &String)| match word.strip_suffix('*') {
        Some("") => !arg.starts_with('-'),
        Some(start) => arg.starts_with(start),
        None => word == arg,
    };
    let all = words.len() <= args.len() && words.iter().zip(args).all(fits);
    (all && !words.is_empty()).then_some(words.len())
}

pub fn name(name: Option<&str>) -> Result<Option<String>, ToolError> {
    let checked = name.map(names::check).transpose();
    checked.map(|name| name.map(str::to_owned)).map_err(|error| {
        ToolError::new(ErrorCode::InvalidArguments, error.to_string(), "choose another name, or leave it out")
    })
}

/// A short word that is kept or looked up: a session, a key, a cursor.
pub fn word<'a>(what: &str, word: &'a str) -> Result<&'a str, ToolError> {
    if word.is_empty() || word.chars().count() > LONGEST_WORD || word.chars().any(char::is_control) {
        let message =
            format!("{what} must be a text of 1 to {LONGEST_WORD} characters without control characters");
        return Err(ToolError::new(ErrorCode::InvalidArguments, message, format!("correct {what}")));
    }
    Ok(word)
}

/// A prompt or message. It is typed in the user's name, so it must be one.
pub fn text(text: &str) -> Result<(), ToolError> {
    let refused = |message: &str, next: &str| Err(ToolError::new(ErrorCode::TextNotAllowed, message, next));
    // Where an agent may see the beginning: U+FEFF is white space to JavaScript, and others may be dropped on the way.
    let seen =
        text.trim_start_matches(|letter: char| letter.is_whitespace() || format::text::is_invisible(letter));
    if seen.is_empty() {
        return refused("the text is empty", "send a text");
    }
    if text.len() > MAX_FRAME / 2 {
        return refused("the text is longer than 1 MiB", "write it to a file and send the file's name");
    }
    if text.chars().any(|letter| letter.is_control() && !"\n\t".contains(letter)) {
        return refused(
            "the text holds control characters",
            "leave them out; only tabs and line breaks are sent",
        );
    }
    // The agents run such a line as a command of the user's, without asking.
    if seen.starts_with('!') {
        return refused(
            "a text that begins with ! would be run as a shell command without a question",
            "ask in words for what is to be done",
        );
    }
    if seen.starts_with('/') && text.trim_start() != seen {
        return refused(
            "the text begins with characters that nobody sees, before a command",
            "leave them out: a command begins with its slash",
        );
    }
    Ok(())
}

/// Whether an agent could take the prompt among these arguments for an option.
pub fn prompt_is_safe(prompt: &str, arguments: &[OsString]) -> bool {
    if !prompt.starts_with('-') {
        return true;
    }
    let at = arguments.iter().position(|argument| argument == OsStr::new(prompt));
    match at {
        // It stands in an argument of another form, like --prompt=TEXT.
        None => true,
        Some(at) => arguments[..at].iter().any(|argument| argument == "--"),
    }
}

/// Whether `folder` may be worked in by a session that is continued there.
pub fn may_continue_in(folder: &Path, caller: &Caller, config: &McpConfig) -> bool {
    config.any_folder || caller.may_work_in(&super::scope::resolved(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(project: &Path) -> Caller {
        Caller { run: None, folder: project.join("src"), project: project.to_owned() }
    }

    #[test]
    fn a_folder_lies_in_the_project_whatever_its_path_says() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let project = root.join("project");
        for folder in [project.join("src/deep"), root.join("other"), root.join("project-2")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::os::unix::fs::symlink(root.join("other"), project.join("src/out")).unwrap();
        std::os::unix::fs::symlink(project.join("src/deep"), root.join("other/in")).unwrap();
        std::fs::write(project.join("file"), "").unwrap();
        let caller = caller(&project);
        let (strict, free) = (McpConfig::default(), McpConfig { any_folder: true, ..McpConfig::default() });
        let outside = root.join("other").display().to_string();
        let link_in = root.join("other/in").display().to_string();
        for (wanted, expected, anywhere) in [
            (None, Some("project/src"), Some("project/src")),
            (Some("deep"), Some("project/src/deep"), Some("project/src/deep")),
            (Some(".."), Some("project"), Some("project")),
            (Some("../.."), None, Some("")),
            (Some("../../project-2"), None, Some("project-2")),
            (Some("out"), None, Some("other")),
            (Some(&outside), None, Some("other")),
            (Some(&link_in), Some("project/src/deep"), Some("project/src/deep")),
            (Some("missing"), None, None),
            (Some("../file"), None, None),
            (Some("deep/../../../other"), None, Some("other")),
        ] {
            for (config, expected) in [(&strict, expected), (&free, anywhere)] {
                let found = folder(wanted, &caller, config);
                let expected = expected.map(|path| root.join(path));
                let expected = expected.map(|path| path.components().collect::<PathBuf>());
                assert_eq!(found.as_ref().ok(), expected.as_ref(), "{wanted:?}: {found:?}");
            }
        }
    }

    #[test]
    fn only_listed_arguments_are_given() {
        let config = McpConfig {
            allow_args: ["--verbose", "--model *", "--effort=*", "-m *"].map(str::to_owned).into(),
            ..McpConfig::default()
        };
        for (line, allowed) in [
            ("", true),
            ("--verbose", true),
            ("--verbose --model opus --effort=high -m x", true),
            ("--model", false),
            ("--model --dangerously-skip-permissions", false),
            ("--verbose --dangerously-skip-permissions", false),
            ("opus", false),
            ("--verbosely", false),
            ("--effort", false),
            ("--", false),
        ] {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(arguments(&args, &config).is_ok(), allowed, "{line}");
        }
        let refused = arguments(&["--verbose".into()], &McpConfig::default()).unwrap_err();
        assert_eq!(refused.code, ErrorCode::ArgumentNotAllowed);
    }

    #[test]
    fn a_text_is_a_message_and_nothing_else() {
        for (message, right) in [
            ("Fix it.\n\tNow!", true),
            ("/clear", true),
            ("-rf is an option", true),
            ("", false),
            (" \n", false),
            ("a\u{1b}[201~b", false),
            ("a\rb", false),
            ("!rm -rf .", false),
            ("  !ls", false),
            ("\u{feff}!ls", false),
            ("\u{200b} \u{2060}!ls", false),
            ("\u{feff}/clear", false),
            (" /clear", true),
            ("\u{feff}", false),
            ("\u{feff}Fix it", true),
            ("a\u{200d}!", true),
        ] {
            assert_eq!(text(message).is_ok(), right, "{message:?}");
        }
        assert!(text(&"x".repeat(MAX_FRAME / 2)).is_ok());
        assert!(text(&"x".repeat(MAX_FRAME / 2 + 1)).is_err());
    }

    #[test]
    fn names_and_words_hold_no_options_and_no_line_breaks() {
        for (given, right) in [("fix", true), ("-x", false), (" --x", false), ("a\nb", false), ("a/b", false)]
        {
            assert_eq!(name(Some(given)).is_ok(), right, "{given:?}");
        }
        assert_eq!(name(None), Ok(None));
        assert!(word("session", "a b").is_ok());
        for wrong in ["", "a\nb", &"x".repeat(201)] {
            assert!(word("session", wrong).is_err());
        }
    }

    #[test]
    fn a_prompt_is_never_an_option() {
        let line = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        for (prompt, arguments, safe) in [
            ("hi", "hi", true),
            ("-x", "-x", false),
            ("-x", "-- -x", true),
            ("-x", "-i -x", false),
            ("-x", "--prompt=-x", true),
        ] {
            assert_eq!(prompt_is_safe(prompt, &line(arguments)), safe, "{arguments}");
        }
    }
}
