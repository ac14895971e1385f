use super::*;
use crate::launch::{Labels, RUN_VARIABLE};
use agents::registry;
use types::EvidenceVerdict;
use types::{RandomIds, Timestamp};

const NOW: Timestamp = Timestamp(1_794_819_900_000);

struct At(Timestamp);

impl Clock for At {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// One binary for every agent, wherever it is looked for.
struct OneBinary(&'static str);

impl Binaries for OneBinary {
    fn find(&self, _: &str, configured: Option<&Path>, _: &Origin) -> Result<PathBuf, NotFound> {
        Ok(configured.unwrap_or(Path::new(self.0)).to_owned())
    }

    fn stopped_loop(&self, agent: &str, origin: &Origin) -> NotFound {
        SystemBinaries.stopped_loop(agent, origin)
    }

    fn installed(&self, _: &dyn Agent, _: &Path, _: Option<&Home>) -> Installed {
        Installed { version: Some("2.1.197".into()), identity: None }
    }
}

fn request(target: LaunchTarget, line: &str) -> LaunchRequest {
    let args = line.split_whitespace().map(OsString::from).collect();
    LaunchRequest { target, args, labels: Labels::default(), session: None, summary: false, proxy: false }
}

fn claude(line: &str) -> LaunchRequest {
    request(LaunchTarget::Agent(registry::called("claude").unwrap()), line)
}

fn origin(vars: &[(&str, &str)]) -> Origin {
    let vars = vars.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Origin::given(vars, "/nowhere/project".into())
}

fn prepared(request: LaunchRequest, origin: &Origin, home: Option<&Home>) -> Result<Prepared, NotFound> {
    let config = Config::load(None, |name| origin.var(name), registry::names());
    let binary = OneBinary("/opt/bin/claude");
    prepare(request, origin, home, &config, World { clock: &At(NOW), ids: &RandomIds, binaries: &binary })
}

fn wrapped(request: LaunchRequest, origin: &Origin) -> (ProgramSpec, Plan, Option<AssignedId>) {
    let home = Home::at("/nowhere/home");
    match prepared(request, origin, Some(&home)) {
        Ok(Prepared::Wrap { launch, plan: Some(plan), assigned, .. }) => (launch, *plan, assigned),
        _ => panic!("not wrapped"),
    }
}

#[test]
fn codemie_stands_aside_where_there_is_no_conversation_or_the_user_says_so() {
    for (line, bypass, aside) in [
        ("", None, false),
        ("-p hello", None, false),
        ("--version", None, true),
        ("mcp list", None, true),
        ("hello", Some("1"), true),
        ("hello", Some("0"), false),
        ("hello", Some(""), false),
    ] {
        let vars: Vec<(&str, &str)> = bypass.map(|value| (BYPASS_VARIABLE, value)).into_iter().collect();
        let executed = matches!(prepared(claude(line), &origin(&vars), None), Ok(Prepared::Execute(_)));
        assert_eq!(executed, aside, "{line:?} {bypass:?}");
    }
}

#[test]
fn another_program_is_executed_where_the_user_says_so() {
    for (bypass, aside) in [("1", true), ("0", false), ("", false)] {
        let make = request(LaunchTarget::Command("/bin/make".into()), "-j 4");
        match prepared(make, &origin(&[(BYPASS_VARIABLE, bypass)]), None) {
            Ok(Prepared::Execute(launch)) => {
                assert!(aside, "{bypass:?}");
                assert_eq!(
                    (launch.program, launch.args),
                    ("/bin/make".into(), vec!["-j".into(), "4".into()])
                );
            }
            prepared => assert!(prepared.is_ok() && !aside, "{bypass:?}"),
        }
    }
}

#[test]
fn what_is_executed_gets_its_arguments_unchanged() {
    let Ok(Prepared::Execute(launch)) = prepared(claude("mcp list"), &origin(&[]), None) else {
        panic!("not executed")
    };
    assert_eq!(launch.args, ["mcp", "list"]);
    assert_eq!((launch.program, launch.arg0), ("/opt/bin/claude".into(), "claude".into()));
    assert_eq!(launch.set.len(), 1, "the loop counter alone");
    assert!(launch.remove.is_empty());
}

#[test]
fn a_call_that_keeps_coming_back_is_stopped() {
    let end = shim::resolve::at_its_end();
    let stopped = prepared(claude("hello"), &origin(&[(shim::resolve::VARIABLE, &end)]), None);
    assert!(stopped.is_err());
}

#[test]
fn a_launch_for_somebody_else_uses_only_the_given_environment_folder_and_id() {
    let session = RandomIds.session();
    let parent = "00000000-0000-4000-8000-000000000009";
    let vars = [("HOME", "/nowhere/user"), (RUN_VARIABLE, parent), ("CLAUDECODE", "1")];
    let labels = Labels { name: Some("fix".into()), tags: vec!["ui".into()], group: None };
    let request = LaunchRequest { session: Some(session), labels, ..claude("hello") };
    let (launch, plan, assigned) = wrapped(request, &origin(&vars));
    assert_eq!((plan.session, plan.begun_at), (session, NOW));
    assert_eq!(plan.folder, Path::new("/nowhere/project"));
    assert_eq!(plan.lineage.named(), Some(parent.parse().unwrap()));
    assert_eq!((plan.name.as_deref(), plan.tags.len()), (Some("fix"), 1));
    assert_eq!(plan.conversation, ConversationStart::Fresh);
    assert_eq!(plan.version.as_deref(), Some("2.1.197"));
    let id = assigned.expect("an interactive conversation gets an id").id;
    assert_eq!(plan.assigned.as_ref(), Some(&id));
    assert_eq!(launch.args, ["--session-id", id.0.as_str(), "hello"]);
    assert_eq!(launch.remove, ["CLAUDECODE"]);
    assert!(plan.observer.is_some(), "HOME leads to its files");
    assert!(plan.surroundings.get("HOME").is_some_and(|home| home == Some("/nowhere/user".into())));
    assert!(plan.notes.iter().all(|note| note.at == NOW && note.verdict == EvidenceVerdict::Noted));
}

#[test]
fn a_print_run_has_an_id_but_is_never_restarted_without_it() {
    let (launch, plan, assigned) = wrapped(claude("-p hello"), &origin(&[("HOME", "/nowhere/user")]));
    assert!(assigned.is_none() && plan.assigned.is_some(), "{launch:?}");
}

#[test]
fn an_agent_without_known_files_is_run_all_the_same() {
    let (_, plan, _) = wrapped(claude("hello"), &origin(&[]));
    assert!(plan.observer.is_none());
}

#[test]
fn any_other_program_is_started_as_it_stands() {
    let (launch, plan, assigned) =
        wrapped(request(LaunchTarget::Command("/bin/make".into()), "-j 4"), &origin(&[]));
    assert_eq!((launch.program, launch.arg0), ("/bin/make".into(), "/bin/make".into()));
    assert_eq!(launch.args, ["-j", "4"]);
    assert!(launch.set.is_empty() && launch.remove.is_empty());
    assert_eq!((plan.agent.as_str(), plan.observer.is_none(), assigned.is_none()), ("make", true, true));
}

#[test]
fn without_a_home_folder_it_runs_and_nothing_is_recorded() {
    let prepared = prepared(claude("hello"), &origin(&[]), None);
    assert!(matches!(prepared, Ok(Prepared::Wrap { plan: None, .. })));
}

#[test]
fn a_binary_of_another_name_is_called_by_its_path() {
    let agent = registry::called("claude").unwrap();
    for (program, expected) in
        [("/opt/bin/claude", "claude"), ("/opt/claude-2.1", "/opt/claude-2.1"), ("./claude", "claude")]
    {
        assert_eq!(arg0(agent, Path::new(program)), expected);
    }
}
