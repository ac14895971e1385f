//! The filter of a page, as its address holds it: days, an agent, a project, a model, a user, a status, search words.
//!
//! An address can be written down, sent to other people and opened again. A part of it that makes no sense is an error: a
//! wrong number is worse than none.

use jiff::ToSpan;
use jiff::civil::Date;
use serde::Deserialize;

use super::sessions::tag_text;
use super::sort::Sort;
use super::text::Now;
use reader::{By, Day, Facets, Order, OrderBy, SessionFilter, UsageFilter};
use types::{DEMO, Filter, Status, Timestamp};

/// The parameters as they stand in an address. A form sends its empty fields too.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct FilterParameters {
    range: String,
    from: String,
    to: String,
    agent: String,
    project: String,
    model: String,
    user: String,
    status: String,
    tag: String,
    q: String,
    sort: String,
    order: String,
    after: String,
    zone: String,
    group: String,
    stack: String,
    cache: String,
    rows: String,
    history: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Today and the days before it.
    Days(u16),
    All,
    /// Both included; open towards the side that is not given.
    Between(Option<Date>, Option<Date>),
}

/// The spans that are one click away.
pub const RANGES: [(Range, &str); 5] = [
    (Range::Days(7), "7 days"),
    (Range::Days(30), "30 days"),
    (Range::Days(90), "90 days"),
    (Range::Days(365), "1 year"),
    (Range::All, "All"),
];

/// What the columns of the cost are split by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    #[default]
    Agent,
    Model,
    Project,
}

impl Stack {
    pub const ALL: [Self; 3] = [Self::Agent, Self::Model, Self::Project];

    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Project => "project",
        }
    }

    pub fn by(self) -> By {
        match self {
            Self::Agent => By::Agent,
            Self::Model => By::Model,
            Self::Project => By::Project,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFilter {
    /// What the fields of the form name. The span follows from `range`; the one word is the whole text that is searched for.
    pub chosen: Filter,
    pub range: Range,
    /// The table that is put in order, if it is not the usual one.
    pub sort: Option<Sort>,
    /// Where the page begins: what the page before it ended with.
    pub after: Option<String>,
    /// The name of the zone that days and times are shown in, where it is not the dashboard's own.
    pub zone: Option<String>,
    /// What the columns of cost are made of.
    pub stack: Stack,
    /// The chart of tokens leaves out what was read from the cache, which is most of them.
    pub without_cache: bool,
    /// Every row of the lists, not only the most expensive ones.
    pub all_rows: bool,
    /// Also what never ran through codemie, on a user's own machine.
    pub history: bool,
    /// The range of an address that names none.
    default: Range,
}

/// A parameter of the address that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is not {expected}")]
pub struct BadParameter {
    name: &'static str,
    expected: &'static str,
}

impl BadParameter {
    pub const SORT: Self = Self { name: "sort", expected: "a column of a table" };
    pub const ORDER: Self = Self { name: "order", expected: "asc or desc" };
    pub const ZONE: Self = Self { name: "zone", expected: "a time zone like Europe/Berlin" };
}

impl FilterParameters {
    pub fn filter(self, default: Range) -> Result<PageFilter, BadParameter> {
        let date = |name, text: &str| match text {
            "" => Ok(None),
            text => {
                text.parse().map(Some).map_err(|_| BadParameter { name, expected: "a date like 2026-11-16" })
            }
        };
        let (from, to) = (date("from", &self.from)?, date("to", &self.to)?);
        let range =
            match self.range.as_str() {
                _ if from.is_some() || to.is_some() => Range::Between(from, to),
                "" => default,
                "all" => Range::All,
                text => {
                    let days = text.strip_suffix('d').and_then(|days| days.parse().ok());
                    let days = days.filter(|days| (1..=3660).contains(days));
                    Range::Days(days.ok_or(BadParameter {
                        name: "range",
                        expected: "a number of days like 30d, or all",
                    })?)
                }
            };
        let sort = Sort::parse(&self.sort, &self.order)?;
        let status = match self.status.as_str() {
            "" => None,
            text => Some(
                Status::parse(text)
                    .ok_or(BadParameter { name: "status", expected: "a status of a session" })?,
            ),
        };
        let stack = match self.stack.as_str() {
            "" => Stack::Agent,
            text => Stack::ALL
                .into_iter()
                .find(|stack| stack.name() == text)
                .ok_or(BadParameter { name: "stack", expected: "agent, model or project" })?,
        };
        let texts = [
            &self.agent,
            &self.project,
            &self.model,
            &self.user,
            &self.tag,
            &self.q,
            &self.after,
            &self.zone,
            &self.group,
        ];
        if texts.iter().any(|text| text.contains('\0')) {
            return Err(BadParameter { name: "this", expected: "a text: it holds a NUL" });
        }
        let given = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        Ok(PageFilter {
            chosen: Filter {
                agent: given(self.agent),
                project: given(self.project),
                model: given(self.model),
                user: given(self.user),
                tag: given(self.tag),
                group: given(self.group),
                status,
                words: given(self.q).into_iter().collect(),
                ..Filter::default()
            },
            range,
            sort,
            after: given(self.after),
            zone: given(self.zone),
            stack,
            without_cache: self.cache == "without",
            all_rows: self.rows == "all",
            history: self.history == "all",
            default,
        })
    }
}

impl PageFilter {
    /// The text that is searched for.
    pub fn search(&self) -> Option<&str> {
        self.chosen.words.first().map(String::as_str)
    }

    /// The same with something else in it, from its first page on.
    #[must_use]
    pub fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut other = Self { after: None, ..self.clone() };
        change(&mut other);
        other
    }

    /// This filter as the address of a page.
    pub fn address(&self, path: &str) -> String {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let date = |value: Option<Date>| value.map(|date| date.to_string()).unwrap_or_default();
        let (from, to) = match self.range {
            Range::Between(from, to) => (date(from), date(to)),
            Range::Days(_) | Range::All => (String::new(), String::new()),
        };
        let parameters = [
            ("range", self.range_word().unwrap_or_default()),
            ("from", from),
            ("to", to),
            ("agent", text(&self.chosen.agent)),
            ("project", text(&self.chosen.project)),
            ("model", text(&self.chosen.model)),
            ("user", text(&self.chosen.user)),
            ("status", self.chosen.status.map(|status| status.to_string()).unwrap_or_default()),
            ("tag", text(&self.chosen.tag)),
            ("q", self.search().unwrap_or_default().to_owned()),
            ("group", text(&self.chosen.group)),
            ("zone", text(&self.zone)),
            ("stack", if self.stack == Stack::Agent { String::new() } else { self.stack.name().into() }),
            ("cache", if self.without_cache { "without".into() } else { String::new() }),
            ("rows", if self.all_rows { "all".into() } else { String::new() }),
            ("history", if self.history { "all".into() } else { String::new() }),
        ];
        let after = [("after", text(&self.after))];
        let parameters = parameters.into_iter().chain(Sort::parameters(self.sort)).chain(after);
        let mut address = path.to_owned();
        for (name, value) in parameters.filter(|(_, value)| !value.is_empty()) {
            address.push(if address.len() == path.len() { '?' } else { '&' });
            address.push_str(name);
            address.push('=');
            address.push_str(&encoded(&value));
        }
        address
    }

    /// The range as the address names it, where it has to.
    pub fn range_word(&self) -> Option<String> {
        match self.range {
            range if range == self.default => None,
            Range::Days(days) => Some(format!("{days}d")),
            Range::All => Some("all".into()),
            Range::Between(..) => None,
        }
    }

    /// The first and the last day, where the range has them.
    pub fn days(&self, today: Date) -> (Option<Date>, Option<Date>) {
        match self.range {
            Range::Days(days) => (today.checked_sub((i64::from(days) - 1).days()).ok(), Some(today)),
            Range::All => (None, None),
            Range::Between(from, to) => (from, to),
        }
    }

    /// The page with the sessions of this filter; its default range is all days.
    pub fn sessions_address(&self) -> String {
        Self { default: Range::All, sort: None, ..self.clone() }.address("/sessions")
    }

    /// The demonstration is play money: left out unless it is asked for, or all there is.
    fn without_demo(&self, there: &Facets) -> Option<String> {
        let played = there.agents.iter().any(|agent| agent == DEMO) && there.agents.len() > 1;
        (played && self.chosen.agent.is_none()).then(|| DEMO.to_owned())
    }

    /// The same with the demonstration alone.
    pub fn only_demo(&self) -> Self {
        self.with(|filter| filter.chosen.agent = Some(DEMO.to_owned()))
    }

    /// The same number of days before these, if they are few enough to be added up, too.
    pub fn before(&self, today: Date) -> Option<Self> {
        let Range::Days(days @ ..=90) = self.range else { return None };
        let last = self.days(today).0?.yesterday().ok()?;
        let first = last.checked_sub((i64::from(days) - 1).days()).ok()?;
        Some(self.with(|filter| filter.range = Range::Between(Some(first), Some(last))))
    }

    /// Whether its sessions can be counted in the time of a page. No index finds the sessions of a model, so each session of
    /// the days is looked at.
    pub fn countable(&self, today: Date) -> bool {
        let reach = today.checked_sub(100.days()).unwrap_or(Date::MIN);
        self.chosen.words.is_empty()
            && self.chosen.tag.is_none()
            && (self.chosen.model.is_none() || self.days(today).0.is_some_and(|first| first >= reach))
    }

    /// This filter as a query of the sums.
    pub fn usage(&self, now: &Now, there: &Facets) -> UsageFilter {
        UsageFilter { filter: self.asked(now, there), zone: now.zone.clone() }
    }

    /// This filter as a query of the sessions.
    pub fn sessions(&self, now: &Now, there: &Facets) -> SessionFilter {
        SessionFilter { order: self.order(now.at), ..self.asked(now, there).into() }
    }

    fn asked(&self, now: &Now, there: &Facets) -> Filter {
        let (first, last) = self.bounds(now.today());
        let span = Day::span_in(first, last, &now.zone);
        Filter { without_agent: self.without_demo(there), span, ..self.chosen.clone() }
    }

    /// The order of the list of sessions.
    pub fn order(&self, now: Timestamp) -> Order {
        let Sort { column, descending, .. } = Sort::of_sessions(self.sort);
        let by = match column {
            "name" => OrderBy::Name,
            "agent" => OrderBy::Agent,
            "project" => OrderBy::Project,
            "user" => OrderBy::User,
            "duration" => OrderBy::Duration(now),
            "tokens" => OrderBy::Tokens,
            "cost" => OrderBy::Cost,
            "status" => OrderBy::Status,
            _ => OrderBy::Started,
        };
        Order { by, descending }
    }

    fn bounds(&self, today: Date) -> (Option<Day>, Option<Day>) {
        let (from, to) = match self.range {
            // Open towards the future: a machine whose clock is ahead is not left out.
            Range::Days(_) => (self.days(today).0, None),
            _ => self.days(today),
        };
        (from.map(Day::of_date), to.map(Day::of_date))
    }

    /// Each part that is set, in words, with the filter without it.
    pub fn parts(&self) -> Vec<(String, Self)> {
        let mut parts = Vec::new();
        let mut part = |name: &str, value: &Option<String>, without: fn(&mut Self)| {
            if let Some(value) = value {
                parts.push((format!("{name}: {value}"), self.with(without)));
            }
        };
        part("agent", &self.chosen.agent, |filter| filter.chosen.agent = None);
        part("project", &self.chosen.project, |filter| filter.chosen.project = None);
        part("model", &self.chosen.model, |filter| filter.chosen.model = None);
        part("user", &self.chosen.user, |filter| filter.chosen.user = None);
        part("status", &self.chosen.status.map(|status| status.to_string()), |filter| {
            filter.chosen.status = None;
        });
        part("tag", &self.chosen.tag.as_deref().map(|tag| tag_text(tag).to_owned()), |filter| {
            filter.chosen.tag = None;
        });
        part("group", &self.chosen.group, |filter| filter.chosen.group = None);
        part("search", &self.search().map(str::to_owned), |filter| filter.chosen.words.clear());
        if let Range::Between(from, to) = self.range {
            let date = |date: Option<Date>| date.map_or("…".to_owned(), |date| date.to_string());
            let default = self.default;
            parts.push((
                format!("{} to {}", date(from), date(to)),
                self.with(|filter| filter.range = default),
            ));
        }
        parts
    }
}

/// For an address: everything but letters, digits and a few marks is escaped.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => {
                use std::fmt::Write;
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    /// Noon of 16 November 2026, in UTC.
    fn now(zone: TimeZone) -> Now {
        Now { at: Timestamp(1_794_830_400_000), zone }
    }

    fn parameters(pairs: &[(&str, &str)]) -> FilterParameters {
        let object = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        serde_json::from_value(serde_json::Value::Object(object)).unwrap()
    }

    fn filter(pairs: &[(&str, &str)]) -> Result<PageFilter, BadParameter> {
        parameters(pairs).filter(Range::Days(30))
    }

    #[test]
    fn a_filter_becomes_its_address() {
        for (pairs, address) in [
            (&[][..], "/"),
            (&[("range", "30d"), ("agent", ""), ("q", "  ")], "/"),
            (&[("range", "7d"), ("agent", "claude")], "/?range=7d&agent=claude"),
            (&[("range", "all"), ("q", "fix & co/ä")], "/?range=all&q=fix%20%26%20co%2F%C3%A4"),
            (&[("range", "7d"), ("from", "2026-11-01")], "/?from=2026-11-01"),
            (&[("tag", "foreign")], "/?tag=foreign"),
            (&[("history", "all"), ("agent", "x")], "/?agent=x&history=all"),
            (&[("sort", "cost"), ("after", "x=")], "/?sort=cost&after=x%3D"),
            (&[("sort", "model.name"), ("order", "desc")], "/?sort=model.name&order=desc"),
        ] {
            assert_eq!(filter(pairs).unwrap().address("/"), address);
        }
    }

    #[test]
    fn bad_parameters_are_errors() {
        for (pairs, message) in [
            ([("from", "yesterday")], "from is not a date like 2026-11-16"),
            ([("to", "2026-02-31")], "to is not a date like 2026-11-16"),
            ([("range", "0d")], "range is not a number of days like 30d, or all"),
            ([("range", "-1d")], "range is not a number of days like 30d, or all"),
            ([("status", "asleep")], "status is not a status of a session"),
            ([("q", "a\0b")], "this is not a text: it holds a NUL"),
            ([("sort", "size")], "sort is not a column of a table"),
        ] {
            assert_eq!(filter(&pairs).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn the_demonstration_counts_only_where_it_is_asked_for_or_alone() {
        let now = now(TimeZone::UTC);
        for (agents, agent, left_out) in [
            (&["claude", "demo"][..], "", true),
            (&["claude", "demo"], "demo", false),
            (&["claude", "demo"], "claude", false),
            (&["demo"], "", false),
            (&["claude"], "", false),
        ] {
            let there =
                Facets { agents: agents.iter().map(|&name| name.into()).collect(), ..Facets::default() };
            let filter = filter(&[("agent", agent)]).unwrap();
            let (usage, sessions) = (filter.usage(&now, &there), filter.sessions(&now, &there));
            assert_eq!(usage.filter.without_agent.is_some(), left_out, "{agents:?} {agent:?}");
            assert_eq!(sessions.filter.without_agent, usage.filter.without_agent, "the same rule for both");
        }
    }

    #[test]
    fn a_change_begins_at_the_first_page() {
        let second = filter(&[("after", "cursor"), ("agent", "claude")]).unwrap();
        assert_eq!(
            second.with(|filter| filter.chosen.user = Some("dev".into())).address("/"),
            "/?agent=claude&user=dev"
        );
        let parts = second.parts();
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].0.as_str(), parts[0].1.address("/")), ("agent: claude", "/".to_owned()));
    }

    #[test]
    fn models_and_words_are_not_counted_over_years() {
        let countable =
            |pairs: &[(&str, &str)]| filter(pairs).unwrap().countable(jiff::civil::date(2026, 11, 16));
        assert!(countable(&[("range", "all")]) && countable(&[("range", "90d"), ("model", "m")]));
        assert!(!countable(&[("range", "365d"), ("model", "m")]) && !countable(&[("q", "word")]));
    }

    #[test]
    fn the_days_before_are_as_many_and_end_where_these_begin() {
        let before = |range| filter(&[("range", range)]).unwrap().before(jiff::civil::date(2026, 11, 16));
        assert_eq!(before("7d").unwrap().address("/"), "/?from=2026-11-03&to=2026-11-09");
        assert_eq!((before("all"), before("365d")), (None, None));
    }

    #[test]
    fn the_sessions_of_an_overview_are_those_of_its_days() {
        let overview = |pairs: &[(&str, &str)]| filter(pairs).unwrap().sessions_address();
        assert_eq!(overview(&[("user", "dev")]), "/sessions?range=30d&user=dev");
        assert_eq!(overview(&[("range", "all")]), "/sessions");
    }

    #[test]
    fn ranges_are_days_of_the_zone_and_both_ends_count() {
        let in_zone = |zone: TimeZone, pairs: &[(&str, &str)]| {
            let now = now(zone);
            let (usage, sessions) = (
                filter(pairs).unwrap().usage(&now, &Facets::default()),
                filter(pairs).unwrap().sessions(&now, &Facets::default()),
            );
            let day = |day: Option<Day>| day.map(|day| day.to_string()).unwrap_or_default();
            let at = |at: Option<Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
            let ((first, last), span) = (usage.days(), sessions.filter.span);
            [day(first), day(last), at(span.since), at(span.until)]
        };
        let bounds = |pairs: &[(&str, &str)]| in_zone(TimeZone::UTC, pairs);
        assert_eq!(bounds(&[("range", "7d")]), ["2026-11-10", "", "2026-11-10T00:00:00.000Z", ""]);
        assert_eq!(
            bounds(&[("from", "2026-11-01"), ("to", "2026-11-02")]),
            ["2026-11-01", "2026-11-02", "2026-11-01T00:00:00.000Z", "2026-11-03T00:00:00.000Z"]
        );
        assert_eq!(bounds(&[("range", "all")]), ["", "", "", ""]);
        let nepal = TimeZone::fixed(jiff::tz::Offset::from_seconds(20_700).unwrap());
        assert_eq!(
            in_zone(nepal, &[("from", "2026-11-01"), ("to", "2026-11-02")]),
            ["2026-11-01", "2026-11-02", "2026-10-31T18:15:00.000Z", "2026-11-02T18:15:00.000Z"]
        );
    }
}
