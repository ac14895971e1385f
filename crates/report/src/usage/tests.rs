use std::collections::BTreeMap;

use super::*;
use store::session::lifecycle::{ConversationStart, bind};
use store::session::testing::{World, binding};
use types::{PicoDollars, RunId, Timestamp, Tokens};
use usage::Order;
use usage::{DatedSums, Owner, OwnerSession, Place, Portion};

/// A source with one portion for each entry: owner, model, quarter, place, dollars.
fn source(owners: Vec<Owner>, calls: &[(u32, &str, i32, Option<u32>, i64)]) -> Spending {
    let mut spending = Spending { owners, ..Spending::default() };
    for &(owner, model, quarter, place, dollars) in calls {
        let number = spending.models.iter().position(|known| known == model).unwrap_or_else(|| {
            spending.models.push(model.to_owned());
            spending.models.len() - 1
        });
        let at = Timestamp(i64::from(quarter) * 900_000);
        let tokens = Tokens { input: 10, ..Tokens::default() };
        let sums = DatedSums::of(at, &tokens, Some(PicoDollars(dollars * 1_000_000_000_000)));
        spending.portions.push(Portion {
            owner,
            model: u32::try_from(number).unwrap(),
            place,
            quarter,
            sums,
        });
    }
    spending
}

fn session(id: &str, chain: &str, tags: &[&str], group: Option<&str>, project: &str) -> Owner {
    Owner {
        agent: "claude".into(),
        conversation: Some(format!("c-{id}")),
        session: Some(OwnerSession {
            id: id.into(),
            name: format!("name-{id}"),
            started_at: Timestamp(7),
            group: group.map(str::to_owned),
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            chain: chain.into(),
            root: if id == "x" { "b" } else { id }.into(),
            local_only: false,
        }),
        project: Some(project.into()),
        repository: Some(format!("acme/{project}")),
        folder: Some(format!("/home/dev/{project}").into()),
        branch: Some("main".into()),
    }
}

fn foreign(conversation: &str, project: Option<&str>) -> Owner {
    Owner {
        agent: "codex".into(),
        conversation: Some(conversation.into()),
        project: project.map(str::to_owned),
        ..Owner::default()
    }
}

/// Two sessions of a chain, one alone; a conversation that is foreign, and the rest of a session's that went on without us.
fn sources() -> [Spending; 2] {
    let owners = vec![
        session("a", "a", &["night", "big"], Some("team"), "web"),
        session("b", "a", &["night"], None, "web"),
        session("x", "x", &[], None, "webshop"),
    ];
    let mut recorded = source(
        owners,
        &[
            (0, "opus", 0, None, 8),
            (0, "haiku", 5, Some(0), 1),
            (1, "opus", 96, Some(1), 4),
            (2, "opus", 96 * 4, None, 2),
        ],
    );
    recorded.places = vec![
        Place { branch: Some("fix".into()), commit: Some("0123456789ab".into()) },
        Place { branch: None, commit: Some("ba9876543210".into()) },
    ];
    let mut rest = foreign("c-x", Some("webshop"));
    rest.agent = "claude".into();
    let scanned =
        source(vec![foreign("f", None), rest], &[(0, "gpt", 96 * 31, None, 16), (1, "opus", 97, None, 32)]);
    [recorded, scanned]
}

fn rows(query: &UsageQuery) -> Vec<(Option<String>, i64)> {
    tally(&sources(), query)
        .rows
        .into_iter()
        .map(|row| (row.key, row.sums.cost.0 / 1_000_000_000_000))
        .collect()
}

#[test]
fn rows_by_every_key() {
    let cases: &[(By, &[(Option<&str>, i64)])] = &[
        (
            By::Hour,
            &[
                (Some("1970-01-01T00"), 8),
                (Some("1970-01-01T01"), 1),
                (Some("1970-01-02T00"), 36),
                (Some("1970-01-05T00"), 2),
                (Some("1970-02-01T00"), 16),
            ],
        ),
        (
            By::Day,
            &[
                (Some("1970-01-01"), 9),
                (Some("1970-01-02"), 36),
                (Some("1970-01-05"), 2),
                (Some("1970-02-01"), 16),
            ],
        ),
        (By::Week, &[(Some("1970-W01"), 45), (Some("1970-W02"), 2), (Some("1970-W05"), 16)]),
        (By::Month, &[(Some("1970-01"), 47), (Some("1970-02"), 16)]),
        (By::Session, &[(Some("c-a"), 9), (Some("c-b"), 4), (Some("c-x"), 34), (Some("f"), 16)]),
        (By::Chain, &[(Some("a"), 13), (Some("x"), 34), (None, 16)]),
        (By::Root, &[(Some("a"), 9), (Some("b"), 38), (None, 16)]),
        (By::Model, &[(Some("opus"), 46), (Some("gpt"), 16), (Some("haiku"), 1)]),
        (By::Project, &[(Some("webshop"), 34), (None, 16), (Some("web"), 13)]),
        (By::Agent, &[(Some("claude"), 47), (Some("codex"), 16)]),
        (By::Branch, &[(Some("main"), 46), (None, 16), (Some("fix"), 1)]),
        (By::Commit, &[(Some("ba9876543210"), 4), (Some("0123456789ab"), 1), (None, 58)]),
        (By::Tag, &[(None, 50), (Some("night"), 13), (Some("big"), 9)]),
        (By::Group, &[(None, 54), (Some("team"), 9)]),
    ];
    assert_eq!(cases.len(), By::ALL.len());
    for (by, expected) in cases {
        let expected: Vec<_> = expected.iter().map(|(key, cost)| (key.map(str::to_owned), *cost)).collect();
        assert_eq!(rows(&UsageQuery::by(*by)), expected, "{by}");
        let tally = tally(&sources(), &UsageQuery::by(*by));
        assert_eq!(
            (tally.total.sums.api_calls, tally.total.sums.cost.0 / 1_000_000_000_000),
            (6, 63),
            "{by}"
        );
        assert_eq!(tally.overlap, *by == By::Tag);
    }
}

#[test]
fn commits_have_their_subject_date_and_project_the_newest_first() {
    let mut sources = sources();
    let facts = |subject: &str, at| CommitFacts { subject: Some(subject.into()), at: Some(Timestamp(at)) };
    let newer = 96 * 900_000 * 2;
    sources[0].commits.insert("0123456789ab".into(), facts("Fix the login", newer));
    let shown = |order, most| {
        let query = UsageQuery { order, most, ..UsageQuery::by(By::Commit) };
        let rows = tally(&sources, &query).rows;
        rows.iter().map(|row| row.key.clone().unwrap_or_default()).collect::<Vec<_>>()
    };
    assert_eq!(shown(None, None), ["0123456789ab", "ba9876543210", ""], "by the date of the commit");
    assert_eq!(shown(None, Some(1)), ["0123456789ab"]);
    assert_eq!(shown(Some(Order::Ascending), None), ["", "ba9876543210", "0123456789ab"]);
    let rows = tally(&sources, &UsageQuery::by(By::Commit)).rows;
    let record = serde_json::to_value(&rows).unwrap();
    let of = |row: usize| {
        serde_json::json!(["subject", "commitTime", "project"].map(|name| record[row][name].clone()))
    };
    assert_eq!(of(0), serde_json::json!(["Fix the login", newer, "web"]));
    assert_eq!(of(1), serde_json::json!([null, null, "web"]), "one that no repository here has");
    assert!(record[2].get("subject").is_none(), "{record}");
}

#[test]
fn filters_take_whole_names_first_and_parts_of_names_of_projects_and_models() {
    let cost = |query: &UsageQuery| rows(query).iter().map(|(_, cost)| cost).sum::<i64>();
    let with = |set: &dyn Fn(&mut Filter)| {
        let mut query = UsageQuery::by(By::Agent);
        set(&mut query.filter);
        cost(&query)
    };
    let some = |text: &str| Some(text.to_owned());
    for (project, expected) in [
        ("web", 13),
        ("webshop", 34),
        ("WEBS", 34),
        ("we", 47),
        ("acme/web", 13),
        ("/home/dev/web", 13),
        ("/home/dev", 0),
        ("none such", 0),
    ] {
        assert_eq!(with(&|filter| filter.project = some(project)), expected, "{project}");
    }
    for (model, expected) in [("opus", 46), ("op", 46), ("gpt", 16), ("x", 0)] {
        assert_eq!(with(&|filter| filter.model = some(model)), expected, "{model}");
    }
    for (branch, expected) in [("main", 46), ("fix", 1), ("mai", 0)] {
        assert_eq!(with(&|filter| filter.branch = some(branch)), expected, "{branch}");
    }
    for (commits, expected) in [
        (&["0123456789ab"][..], 1),
        (&["0123456789abcdef0123"], 1),
        (&["0123", "ba98"], 5),
        (&[], 0),
        (&[""], 0),
    ] {
        let commits = Some(commits.iter().map(|&commit| commit.to_owned()).collect());
        assert_eq!(
            cost(&UsageQuery { commits: commits.clone(), ..UsageQuery::by(By::Agent) }),
            expected,
            "{commits:?}"
        );
    }
    assert_eq!(with(&|filter| filter.agent = some("codex")), 16);
    assert_eq!(with(&|filter| filter.without_agent = some("claude")), 16);
    assert_eq!(with(&|filter| filter.tag = some("night")), 13);
    assert_eq!(with(&|filter| filter.group = some("team")), 9);
    let both = |filter: &mut Filter| (filter.tag, filter.model) = (some("night"), some("haiku"));
    assert_eq!(with(&both), 1);
}

#[test]
fn rows_are_ordered_and_cut_to_the_latest_or_the_most_expensive() {
    let keys = |by, order, most| {
        let keys = rows(&UsageQuery { order, most, ..UsageQuery::by(by) });
        keys.into_iter().map(|(key, _)| key.unwrap_or("-".into())).collect::<Vec<_>>()
    };
    assert_eq!(keys(By::Month, None, Some(1)), ["1970-02"]);
    assert_eq!(keys(By::Month, Some(Order::Descending), None), ["1970-02", "1970-01"]);
    assert_eq!(keys(By::Month, Some(Order::Ascending), None), ["1970-01", "1970-02"]);
    assert_eq!(keys(By::Model, None, Some(2)), ["opus", "gpt"]);
    assert_eq!(keys(By::Model, Some(Order::Ascending), Some(2)), ["gpt", "opus"]);
    assert_eq!(keys(By::Session, Some(Order::Descending), Some(2)), ["f", "c-x"]);
    let cut = tally(&sources(), &UsageQuery { most: Some(1), ..UsageQuery::by(By::Day) });
    assert_eq!((cut.left_out, cut.total.sums.api_calls), (3, 6), "the total is of everything");
}

#[test]
fn a_breakdown_adds_up_to_its_row() {
    let query = UsageQuery { breakdown: Some(By::Model), ..UsageQuery::by(By::Project) };
    let rows = tally(&sources(), &query).rows;
    for row in &rows {
        let sum: i64 = row.breakdown.iter().map(|part| part.sums.cost.0).sum();
        assert_eq!(sum, row.sums.cost.0, "{row:?}");
    }
    let web = &rows[2].breakdown;
    assert_eq!(web.iter().map(|part| part.key.as_deref().unwrap()).collect::<Vec<_>>(), ["opus", "haiku"]);
}

#[test]
fn only_conversations_without_any_session_are_foreign() {
    let found = ForeignUsage::among(&sources(), &UsageQuery::by(By::Day));
    assert_eq!((found.conversations, found.sum.sums.api_calls), (1, 1));
}

#[test]
fn rows_of_sessions_have_name_project_and_start() {
    let rows = tally(&sources(), &UsageQuery::by(By::Session)).rows;
    let record = serde_json::to_value(&rows).unwrap();
    assert_eq!(record[0]["name"], "name-a");
    assert_eq!(
        (&record[0]["sessionId"], &record[0]["project"], &record[0]["startTime"]),
        (&"a".into(), &"web".into(), &7.into())
    );
    let foreign = &record[3];
    assert_eq!((&foreign["name"], &foreign["sessionId"]), (&().into(), &().into()));
    assert_eq!((&foreign["startTime"], &foreign["foreign"]), (&(96 * 31 * 900_000_i64).into(), &true.into()));
    let chains = serde_json::to_value(tally(&sources(), &UsageQuery::by(By::Chain)).rows).unwrap();
    assert_eq!(
        (&chains[0]["key"], &chains[0]["name"], &chains[2]["key"]),
        (&"a".into(), &"name-a".into(), &().into())
    );
}

/// The session at the top names the row, whether it called anybody or not.
#[test]
fn calls_of_a_tree_count_for_the_session_at_its_top() {
    let mut world = World::new();
    let start = |world: &mut World, parent: Option<RunId>| {
        let mut begin = world.begin(ConversationStart::Fresh);
        begin.parent = parent;
        (begin.run.id, world.start_as(&begin).1.session)
    };
    let (run, top) = start(&mut world, None);
    let (child_run, child) = start(&mut world, Some(run));
    let (_, grandchild) = start(&mut world, Some(child_run));
    let (_, other) = start(&mut world, None);
    let clock = LocalClock::of(jiff::tz::TimeZone::UTC);
    let spending = world.store.read(|view| view.spending(&clock, Span::default())).unwrap();
    let roots: BTreeMap<String, String> = spending
        .owners
        .iter()
        .flat_map(|owner| &owner.session)
        .map(|session| (session.id.clone(), session.root.clone()))
        .collect();
    let [top, child, grandchild, other] = [top, child, grandchild, other].map(|id| id.to_string());
    let expected = [(&top, &top), (&child, &top), (&grandchild, &top), (&other, &other)];
    assert_eq!(roots, expected.map(|(id, root)| (id.clone(), root.clone())).into());
    let rows = tally(&sources(), &UsageQuery::by(By::Root)).rows;
    let labels: Vec<Option<&str>> = rows.iter().map(|row| Some(row.label.as_ref()?.name.as_str())).collect();
    assert_eq!(labels, [Some("name-a"), Some("name-b"), None]);
}

#[test]
fn the_store_gives_its_sessions() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    let (at, ids) = (world.now, &world.ids);
    world.store.write(|tx| bind(tx, at, ids, started.session, &binding("one"))).unwrap();
    let clock = LocalClock::of(jiff::tz::TimeZone::UTC);
    let spending = world.store.read(|view| view.spending(&clock, Span::default())).unwrap();
    let [owner] = <[_; 1]>::try_from(spending.owners.clone()).unwrap();
    let session = owner.session.unwrap();
    assert_eq!((owner.project.as_deref(), session.started_at), (Some("project"), at));
    assert_eq!(session.chain, started.session.to_string());
    let ids = super::ids(&spending);
    assert!(ids.contains(&binding("one").agent_session.0) && ids.contains(&started.session.to_string()));
}
