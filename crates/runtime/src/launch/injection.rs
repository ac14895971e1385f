//! What codemie adds to an agent's arguments and environment, and takes away from them. Pure.

use std::ffi::OsString;
use std::path::Path;

use super::proxy_setup::ProxySetup;
use agents::{Agent, Assigned, Invocation, LaunchStart, Var};
use config::AgentConfig;
use types::Ids;

/// Set by codemie for its own next image, across an exec: the agent refused the id it was given, so it gets none this time.
pub(super) const RESTARTED_VARIABLE: &str = "CODEMIE_STARTED_ANEW";

/// One call of an agent.
pub(super) struct Call<'a> {
    pub agent: &'static dyn Agent,
    pub args: &'a [OsString],
    pub invocation: &'a Invocation,
    /// `None` where it is not known yet.
    pub version: Option<&'a str>,
    pub config: &'a AgentConfig,
    /// Where it is to work.
    pub folder: &'a Path,
}

/// All changes to one call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// To stand before the user's own arguments.
    pub args: Vec<OsString>,
    pub set: Vec<(OsString, OsString)>,
    pub remove: Vec<OsString>,
    /// What the added arguments give the agent's session.
    pub assigned: Option<Assigned>,
    /// What was done or left undone, for `explain`: `arguments`, `environment` or `proxy`, and the sentence.
    pub notes: Vec<(&'static str, String)>,
}

impl Changes {
    /// Nothing at all where the user does not want anything added.
    pub(super) fn of(call: &Call<'_>, var: Var<'_>, ids: &dyn Ids) -> Self {
        let mut changes = Self::default();
        if call.config.inject {
            changes.remove_nesting(call.agent, var);
            changes.add_arguments(call, var, ids);
            changes.embed(call);
            changes.add_mark(call, ids);
        }
        changes
    }

    /// What leads the agent through the proxy, or why nothing does.
    pub(super) fn add_detour(&mut self, proxy_setup: &ProxySetup) {
        match proxy_setup {
            ProxySetup::Off => {}
            ProxySetup::Not(why) => self.note("proxy", format!("not used: {why}")),
            ProxySetup::Through(through) => {
                self.note("proxy", through.note());
                self.args.extend(through.arguments());
                self.set.extend(through.variables());
            }
        }
    }

    fn note(&mut self, source: &'static str, detail: impl Into<String>) {
        self.notes.push((source, detail.into()));
    }

    /// An enclosing session of the same agent is not to make this one a part of itself.
    fn remove_nesting(&mut self, agent: &dyn Agent, var: Var<'_>) {
        let present: Vec<&str> =
            agent.nesting_variables().iter().copied().filter(|name| var(name).is_some()).collect();
        if !present.is_empty() {
            self.note("environment", format!("taken away: {}", present.join(" ")));
        }
        self.remove = present.iter().map(OsString::from).collect();
    }

    fn add_arguments(&mut self, call: &Call<'_>, var: Var<'_>, ids: &dyn Ids) {
        if var(RESTARTED_VARIABLE).is_some() {
            self.note("arguments", "none added: the agent was started again because it refused its id");
            self.remove.push(RESTARTED_VARIABLE.into());
            return;
        }
        let Call { agent, args, invocation, version, folder, .. } = *call;
        let injection =
            agent.inject(&LaunchStart { invocation, args, version, fresh: ids.uuid(), var, folder });
        match injection {
            Some(injection) => {
                self.note("arguments", format!("added: {}", joined(&injection.args)));
                self.args = injection.args;
                self.assigned = injection.assigned;
            }
            None if call.version.is_none() && call.invocation.injectable => {
                self.note("arguments", "none added: its version is not known yet; `codemie doctor` asks it");
            }
            None => {}
        }
    }

    fn embed(&mut self, call: &Call<'_>) {
        let added = call.agent.embed(call.invocation, call.args, call.version);
        if let Some(added) = added.filter(|_| call.config.embedded) {
            self.note("arguments", format!("added: {}", joined(&added)));
            self.args.extend(added);
        }
    }

    fn add_mark(&mut self, call: &Call<'_>, ids: &dyn Ids) {
        if let Some((name, value)) = call.agent.mark(ids.uuid()).filter(|_| call.config.marks) {
            self.note("environment", format!("added: {name}={value}"));
            self.set.push((name.into(), value.into()));
        }
    }
}

fn joined(args: &[OsString]) -> String {
    args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::registry;
    use types::RandomIds;

    fn changes(
        agent: &str,
        line: &str,
        version: Option<&str>,
        config: &AgentConfig,
        vars: &[&str],
    ) -> Changes {
        let agent = registry::called(agent).unwrap();
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let invocation = agent.classify(&args);
        let var = |name: &str| vars.contains(&name).then(|| OsString::from("1"));
        let folder = Path::new("/project");
        let call = Call { agent, args: &args, invocation: &invocation, version, config, folder };
        Changes::of(&call, &var, &RandomIds)
    }

    fn config(inject: bool, marks: bool) -> AgentConfig {
        AgentConfig { path: None, inject, embedded: true, marks }
    }

    const KNOWN: Option<&str> = Some("2.1.197");

    #[test]
    fn a_fresh_conversation_of_a_known_version_gets_an_id_and_everything_else_is_left_alone() {
        for (line, version, vars, added, notes) in [
            ("hello", KNOWN, &[][..], true, &["arguments added: --session-id"][..]),
            ("hello", None, &[], false, &["arguments none added: its version is not known yet"]),
            ("--resume x", KNOWN, &[], false, &[]),
            ("--resume x", None, &[], false, &[]),
            ("--flag-nobody-knows", None, &[], false, &[]),
            (
                "hello",
                KNOWN,
                &[RESTARTED_VARIABLE],
                false,
                &["arguments none added: the agent was started again"],
            ),
            (
                "hello",
                KNOWN,
                &["CLAUDECODE", "UNRELATED"],
                true,
                &["environment taken away: CLAUDECODE", "arguments added: --session-id"],
            ),
        ] {
            let changes = changes("claude", line, version, &config(true, false), vars);
            assert_eq!(changes.assigned.is_some(), added, "{line} {changes:?}");
            assert_eq!(changes.args.len(), if added { 2 } else { 0 }, "{line} {changes:?}");
            let noted: Vec<String> =
                changes.notes.iter().map(|(source, detail)| format!("{source} {detail}")).collect();
            assert_eq!(noted.len(), notes.len(), "{line} {noted:?}");
            assert!(noted.iter().zip(notes).all(|(noted, note)| noted.starts_with(note)), "{line} {noted:?}");
        }
    }

    #[test]
    fn variables_of_an_enclosing_session_and_our_own_message_do_not_reach_the_agent() {
        let changes = changes("claude", "", KNOWN, &config(true, false), &["CLAUDECODE", RESTARTED_VARIABLE]);
        assert_eq!(changes.remove, [OsString::from("CLAUDECODE"), RESTARTED_VARIABLE.into()]);
        assert!(changes.set.is_empty());
    }

    #[test]
    fn nothing_is_changed_where_the_user_switched_it_off() {
        let vars = &["CLAUDECODE", RESTARTED_VARIABLE][..];
        assert_eq!(changes("claude", "", KNOWN, &config(false, true), vars), Changes::default());
    }

    #[test]
    fn codex_is_kept_in_its_own_process_unless_the_user_wants_it_bare() {
        for (inject, embedded, added) in
            [(true, true, &["--no-daemon"][..]), (true, false, &[]), (false, true, &[])]
        {
            let config = AgentConfig { path: None, inject, embedded, marks: false };
            let changes = changes("codex", "hello", Some("0.166.0"), &config, &[]);
            assert_eq!(changes.args, added, "{inject} {embedded}");
            let notes = added.iter().map(|added| ("arguments", format!("added: {added}")));
            assert_eq!(changes.notes, notes.collect::<Vec<_>>(), "{inject} {embedded}");
        }
    }

    #[test]
    fn a_mark_is_set_only_on_request() {
        for (agent, marks, set) in [("codex", true, 1), ("codex", false, 0), ("claude", true, 0)] {
            let changes = changes(agent, "", None, &config(true, marks), &[]);
            assert_eq!(changes.set.len(), set, "{agent} {marks}");
        }
    }
}
