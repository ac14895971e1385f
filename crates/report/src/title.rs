//! What conversations are about whose lines were not read for it: those that codemie never wrapped, and those of sessions that
//! were recorded before titles were.

use super::list::SessionLine;
use agents::Agent;
use agents::UnwrappedConversation;
use agents::meter::form::FormReader;
use agents::meter::title::Title;
use agents::registry;
use runtime::launch::Origin;
use store::{self, Store};
use types::AgentSessionId;

/// How much of a session's conversation is read for its title: the first prompt is near its beginning.
const BEGINNING: u64 = 1 << 20;

/// The agent's own title, else the first prompt's first line. Reads the whole conversation.
pub fn of_foreign(foreign: &UnwrappedConversation, origin: &Origin) -> Option<String> {
    title_of(foreign, origin, u64::MAX).map(|title| title.text)
}

/// The one in the lines at the beginning of a conversation.
pub fn of_beginning(conversation: &UnwrappedConversation, origin: &Origin) -> Option<String> {
    let agent = registry::by_name(&conversation.agent)?;
    title_inside(agent, conversation, origin, BEGINNING).map(|title| title.text)
}

/// The one that the agent keeps apart from the conversation's lines: it counts before theirs.
pub fn kept_apart(agent: &dyn Agent, conversation: &AgentSessionId, origin: &Origin) -> Option<String> {
    agent.title(&|name| origin.var(name), conversation).map(|title| title.text)
}

/// Finds and stores the titles of sessions that were recorded before titles were. Each is looked for once, or again where the store
/// is locked.
pub fn add_missing<'a>(
    store: &mut Store,
    lines: impl Iterator<Item = &'a mut SessionLine>,
    origin: &Origin,
) -> Result<(), store::Error> {
    let mut locked = false;
    for line in lines.filter(|line| line.row.title.is_none() && !line.row.title_sought) {
        let Some(row) = store.read(|view| view.session_number(line.row.n))? else { continue };
        let (Some(agent_session), Some(file)) = (row.agent_session, row.agent_session_file) else { continue };
        // A conversation that has just begun has no prompt yet; whoever follows it will find its title.
        if row.ended_at.is_none() {
            continue;
        }
        let conversation =
            UnwrappedConversation { agent: row.agent, agent_session, file, cwd: Some(row.workspace.cwd) };
        let title = title_of(&conversation, origin, BEGINNING);
        let noted = |tx: &store::Tx<'_>| match &title {
            Some(title) => tx.set_title(row.id, title),
            None => tx.note_untitled(row.n),
        };
        if !locked {
            match store.in_a_hurry(|store| store.write(noted)) {
                Err(store::Error::Busy) => locked = true,
                stored => stored?,
            }
        }
        line.row.title = title.map(|title| title.text);
    }
    Ok(())
}

/// `most`: about so many bytes are read.
fn title_of(conversation: &UnwrappedConversation, origin: &Origin, most: u64) -> Option<Title> {
    let agent = registry::by_name(&conversation.agent)?;
    let apart = agent.title(&|name| origin.var(name), &conversation.agent_session);
    apart.or_else(|| title_inside(agent, conversation, origin, most))
}

/// From its own lines.
fn title_inside(
    agent: &dyn Agent,
    conversation: &UnwrappedConversation,
    origin: &Origin,
    most: u64,
) -> Option<Title> {
    let file = &conversation.file;
    let observer = agent.observer(&|name| origin.var(name), conversation.cwd.as_deref().unwrap_or(file))?;
    let form = agent.form(file);
    let content = form.open(file).ok()?;
    let mut followed = FormReader::new(form, None, observer.lines(None));
    let mut best: Option<Title> = None;
    while let Ok(Some(batch)) = followed.next(&content) {
        if let Some(title) = batch.parsed.title
            && best.as_ref().is_none_or(|known| title.replaces(known))
        {
            best = Some(title);
        }
        if batch.to.progress() >= most {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn title(agent: &str, variable: &str, recording: &str, file: &str, id: &str) -> Option<String> {
        let root =
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures").join(recording);
        let foreign = UnwrappedConversation {
            agent: agent.into(),
            agent_session: AgentSessionId(id.into()),
            file: root.join(file),
            cwd: Some(PathBuf::from("/home/dev/project")),
        };
        let origin = Origin::given([(variable.into(), root.into_os_string())], "/".into());
        of_foreign(&foreign, &origin)
    }

    #[test]
    fn each_agents_conversations_have_titles() {
        let claude = |recording: &str, file: &str| {
            let file = format!("projects/-home-dev-project/{file}.jsonl");
            title("claude", "CLAUDE_CONFIG_DIR", &format!("claude/{recording}"), &file, "x")
        };
        assert_eq!(
            claude("02-tools", "02000000-0000-4000-8000-000000000002").as_deref(),
            Some("Fake title 1"),
            "the agent's own"
        );
        assert_eq!(
            claude("05-resume-fork-branch-rewind", "30374d2a-265c-4426-ad8b-cb9209a4e41c").as_deref(),
            Some("original one (Branch)"),
            "the user's, whatever the agent finds later"
        );
        assert_eq!(
            claude("07-subagent", "07000000-0000-4000-8000-000000000007/subagents/agent-a5d0c878158073cce"),
            None,
            "a sub-agent's instructions are no prompt"
        );
        let codex =
            "sessions/2026/11/15/rollout-2026-11-15T23-32-45-01a1e18e-5c04-7c81-b525-b7d2f464be7c.jsonl";
        assert_eq!(title("codex", "CODEX_HOME", "codex/clear-new", codex, "x").as_deref(), Some("beta one"));
    }

    #[test]
    fn a_name_in_codexs_list_wins_over_the_prompt() {
        let home = tempfile::tempdir().unwrap();
        let rollout = home.path().join("rollout.jsonl");
        std::fs::write(
            &rollout,
            "{\"type\":\"event_msg\",\"payload\":{\"type\":\"user_message\",\"message\":\"hi\"}}\n",
        )
        .unwrap();
        let names = "{\"id\":\"t1\",\"thread_name\":\"Old\"}\n{\"id\":\"t1\",\"thread_name\":\"Fix the proxy\"}\n{\"id\":\"t2\",\"thread_name\":\"Other\"}\ntorn";
        std::fs::write(home.path().join("session_index.jsonl"), names).unwrap();
        let of = |id: &str| {
            let foreign = UnwrappedConversation {
                agent: "codex".into(),
                agent_session: AgentSessionId(id.into()),
                file: rollout.clone(),
                cwd: None,
            };
            of_foreign(&foreign, &Origin::given([("CODEX_HOME".into(), home.path().into())], "/".into()))
        };
        assert_eq!(of("t1").as_deref(), Some("Fix the proxy"));
        assert_eq!(of("t3").as_deref(), Some("hi"));
    }
}
