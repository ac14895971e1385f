//! What a conversation is about, in one line: the title that its agent or its user gave it, else its first prompt.
//!
//! Words of a conversation: a title stays on this machine.

/// No longer title is kept; a line of a wide terminal holds less.
const LONGEST: usize = 200;

/// Who found the words. The later ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TitleSource {
    /// The first prompt, in place of a title.
    Prompt,
    Agent,
    /// The user, who named the conversation inside the agent.
    User,
}

impl TitleSource {
    /// As the store keeps it.
    pub fn rank(self) -> i64 {
        match self {
            Self::Prompt => 0,
            Self::Agent => 1,
            Self::User => 2,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Title {
    pub source: TitleSource,
    /// One line, never blank.
    pub text: String,
}

impl Title {
    /// A title that somebody gave; `None` for a blank one.
    pub fn given(source: TitleSource, text: &str) -> Option<Self> {
        let mut words = text.split(|letter: char| letter.is_whitespace() || letter.is_control());
        let mut line = String::new();
        while let Some(word) = words.find(|word| !word.is_empty())
            && line.len() < 4 * LONGEST
        {
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        if let Some((cut, _)) = line.char_indices().nth(LONGEST) {
            line.truncate(cut);
            line.push('…');
        }
        (!line.is_empty()).then_some(Self { source, text: line })
    }

    /// The first line of a prompt that somebody typed, without what programs put around it.
    pub fn of_prompt(text: &str) -> Option<Self> {
        let command = || {
            let name = inside(text, "command-name")?;
            Some(format!("{name} {}", inside(text, "command-args").unwrap_or_default()))
        };
        if text.trim_start().starts_with("<command-")
            && let Some(command) = command()
        {
            return Self::given(TitleSource::Prompt, &command);
        }
        let typed = text.split_once(EDITOR_REQUEST).map_or(text, |(_, request)| request);
        let typed = unwrapped(typed);
        let line = typed.lines().find(|line| line.chars().any(char::is_alphanumeric));
        Self::given(TitleSource::Prompt, line.unwrap_or(typed))
    }

    /// Whether it is better than one that was known before. Of several first prompts the earliest counts.
    pub fn replaces(&self, known: &Self) -> bool {
        self.source > known.source || (self.source == known.source && self.source != TitleSource::Prompt)
    }
}

/// What Codex's editor extension writes between the editor's state and the words of the user.
const EDITOR_REQUEST: &str = "## My request for Codex:";

/// Without the elements before the text that a program put there (`<system-reminder>…</system-reminder>`). A text that is nothing
/// but one element is left as it is.
fn unwrapped(text: &str) -> &str {
    let mut rest = text.trim();
    while let Some(after) = after_element(rest).map(str::trim_start).filter(|after| !after.is_empty()) {
        rest = after;
    }
    rest
}

fn after_element(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('<')?;
    let length = inside.find(|letter: char| !(letter.is_ascii_alphanumeric() || "-_".contains(letter)))?;
    let name = &inside[..length];
    let end = format!("</{name}>");
    (length > 0).then(|| text.split_once(&end)).flatten().map(|(_, after)| after)
}

/// The content of the first element of this name.
fn inside<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(&format!("<{name}>"))?;
    after.split_once(&format!("</{name}>")).map(|(inside, _)| inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(text: &str) -> Option<String> {
        Title::of_prompt(text).map(|title| title.text)
    }

    #[test]
    fn the_first_line_of_a_prompt_stands_for_it() {
        for (text, title) in [
            ("fix the flaky test", Some("fix the flaky test")),
            ("\n\n  fix\tthe \u{1b}[31mtest\nplease", Some("fix the [31mtest")),
            ("---\nReal words", Some("Real words")),
            ("???", Some("???")),
            ("<system-reminder>\nDo not\n</system-reminder>\n\nhello", Some("hello")),
            ("<a>x</a><b>y</b> hello", Some("hello")),
            ("<b>all of it</b>", Some("<b>all of it</b>")),
            ("<not closed> hello", Some("<not closed> hello")),
            (
                "<command-message>review</command-message>\n<command-name>/review</command-name>\n<command-args>the\nproxy</command-args>",
                Some("/review the proxy"),
            ),
            ("<command-name>/init</command-name>", Some("/init")),
            (
                "# Context from my IDE setup:\n\n## Open tabs:\n- a.rs\n\n## My request for Codex:\nrename it\n",
                Some("rename it"),
            ),
            ("größer 修正", Some("größer 修正")),
            ("", None),
            (" \n\t", None),
        ] {
            assert_eq!(prompt(text).as_deref(), title, "{text:?}");
        }
    }

    #[test]
    fn a_title_is_one_bounded_line() {
        let long = prompt(&"wörter ".repeat(1000)).unwrap();
        assert_eq!(long.chars().count(), LONGEST + 1);
        assert!(long.ends_with('…'), "{long}");
        assert_eq!(Title::given(TitleSource::Agent, "a\nb\u{0}c").unwrap().text, "a b c");
        assert_eq!(Title::given(TitleSource::Agent, "\n"), None);
    }

    #[test]
    fn the_users_own_title_wins_over_the_agents_and_that_over_a_prompt() {
        use TitleSource::{Agent, Prompt, User};
        for (later, known, wins) in [
            (Agent, Prompt, true),
            (User, Agent, true),
            (Agent, Agent, true),
            (User, User, true),
            (Prompt, Prompt, false),
            (Prompt, Agent, false),
            (Agent, User, false),
        ] {
            let title = |source| Title { source, text: "x".into() };
            assert_eq!(title(later).replaces(&title(known)), wins, "{later:?} after {known:?}");
            assert_eq!(later.rank() > known.rank() || (later == known && later != Prompt), wins);
        }
    }
}
