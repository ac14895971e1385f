//! What the four APIs report, and where.
//!
//! An event (or a whole document) is read into [`Facts`]; at its end they are applied to what is known of the call
//! ([`Account`]). Each API has two functions for it: `note` knows the paths, `apply` what an event means.

mod chat;
mod gemini;
mod messages;
mod responses;

use pricing::tier::Tier;
use types::Tokens;

use super::json::Value;
use super::{Api, Metered, Unread};

pub(super) use responses::is_last as is_last_response_event;

/// Whether an event is one of a stream or the whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Event,
    Document,
}

/// What one event reports, as far as it has been read.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The event's type.
    pub(super) kind: Option<String>,
    id: Option<String>,
    model: Option<String>,
    counts: Counts,
    has_usage: bool,
    /// Something else stood behind the usage: all of it was read.
    usage_is_whole: bool,
    /// A number of the usage could not be read.
    unread: bool,
    /// The name of the service that answered.
    tier: Option<String>,
    error: Option<String>,
    /// Of an error whose event has it at its root.
    code: Option<String>,
    /// It holds something that a model wrote.
    written: bool,
    /// It says why the answer ended.
    ending: bool,
}

/// The vendor's own numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    input: Option<u64>,
    output: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    cache_write_5m: Option<u64>,
    cache_write_1h: Option<u64>,
    reasoning: Option<u64>,
    tools: Option<u64>,
}

/// What is known of one call.
#[derive(Debug)]
pub(super) struct Account {
    api: Api,
    pub(super) metered: Metered,
    /// The model has written something.
    pub(super) has_content: bool,
    counts: Counts,
}

impl Account {
    pub(super) fn new(api: Api) -> Self {
        Self { api, metered: Metered::default(), has_content: false, counts: Counts::default() }
    }

    pub(super) fn note(&self, facts: &mut Facts, path: &str, value: Value<'_>) {
        facts.usage_is_whole |= facts.has_usage && !path.contains("usage");
        match self.api {
            Api::Messages => messages::note(facts, path, value),
            Api::Responses => responses::note(facts, path, value),
            Api::ChatCompletions => chat::note(facts, path, value),
            Api::Gemini => gemini::note(facts, path, value),
        }
    }

    /// An event is at its end.
    pub(super) fn apply(&mut self, facts: Facts, form: Form) {
        if self.api == Api::Responses && form == Form::Event && !responses::is_own(&facts) {
            return;
        }
        self.look_for_content(&facts, form);
        self.name(&facts);
        self.apply_facts(&facts);
        let code = facts.code.filter(|_| facts.kind.as_deref() == Some("error"));
        if let Some(error) = facts.error.or(code) {
            // An error that is all of the answer ends it. One in the middle breaks it off.
            self.metered.finished |= self.metered.response_id.is_none();
            self.metered.error = Some(error);
        }
    }

    fn apply_facts(&mut self, facts: &Facts) {
        match self.api {
            Api::Messages => messages::apply(self, facts),
            Api::Responses => responses::apply(self, facts),
            Api::ChatCompletions => chat::apply(self, facts),
            Api::Gemini => gemini::apply(self, facts),
        }
        if facts.unread {
            self.metered.unread.get_or_insert(Unread::Number);
        }
    }

    /// An event will not come to its end. Names are taken from it, and its usage where that was whole: a number may miss its
    /// neighbours. What it says of the answer's end is not believed.
    pub(super) fn apply_cut(&mut self, facts: &Facts, form: Form) {
        self.look_for_content(facts, form);
        self.name(facts);
        let is_own = self.api != Api::Responses || form == Form::Document || responses::is_own(facts);
        if facts.usage_is_whole && is_own {
            let finished = self.metered.finished;
            self.apply_facts(facts);
            self.metered.finished = finished;
        }
    }

    /// Content counts as soon as it is seen, not only at the end of its event.
    pub(super) fn look_for_content(&mut self, facts: &Facts, form: Form) {
        self.has_content |= facts.written
            && match self.api {
                Api::Messages => messages::is_content(facts, form),
                Api::Responses => responses::is_content(facts, form),
                Api::ChatCompletions | Api::Gemini => true,
            };
    }

    /// Whether an event that begins like this only holds more of what the model writes, which it has begun to do before. Seen from
    /// the event's type where that comes first, as the vendors write it.
    pub(super) fn is_further_content(&self, head: &[u8]) -> bool {
        let kind = || {
            let kind = head.strip_prefix(b"{\"type\":\"")?;
            kind.get(..memchr::memchr(b'"', kind)?)
        };
        self.has_content
            && match self.api {
                Api::Messages => kind() == Some(b"content_block_delta"),
                Api::Responses => {
                    kind().is_some_and(|kind| kind.starts_with(b"response.") && kind.ends_with(b".delta"))
                }
                // Each of their events may have the numbers.
                Api::ChatCompletions | Api::Gemini => false,
            }
    }

    /// The answer's own sign of its end, where that is no event: `[DONE]`, or the end of a document.
    pub(super) fn done(&mut self) {
        self.metered.finished = true;
    }

    /// An answer keeps the id that it began with.
    fn name(&mut self, facts: &Facts) {
        let Metered { response_id, model, .. } = &mut self.metered;
        if response_id.is_none() {
            response_id.clone_from(&facts.id);
        }
        if facts.model.is_some() {
            model.clone_from(&facts.model);
        }
    }

    fn set_tier(&mut self, name: Option<&str>) {
        if name.is_some() {
            self.metered.tier = Tier::named(name);
        }
    }
}

impl Counts {
    /// Where the vendor's input includes what was read from its cache or written to it.
    fn with_cached_input(self) -> Tokens {
        let count = |count: Option<u64>| count.unwrap_or(0);
        let (read, written) = (count(self.cache_read), count(self.cache_write));
        Tokens {
            input: count(self.input).saturating_sub(read.saturating_add(written)),
            output: count(self.output),
            cache_read: read,
            cache_write_5m: written,
            cache_write_1h: 0,
            reasoning: count(self.reasoning),
        }
    }
}

/// Keeps a count. `true`: something else stands there. `null` is no count, and nothing that was not read.
fn keep_count(place: &mut Option<u64>, value: Value<'_>) -> bool {
    let count = value.count();
    *place = count.or(*place);
    count.is_none() && value.is_something()
}

/// Keeps a text, unless it is empty or no text at all.
fn keep(place: &mut Option<String>, value: Value<'_>) {
    if let Some(text) = value.text().filter(|text| !text.is_empty()) {
        *place = Some(text.to_owned());
    }
}

#[cfg(test)]
#[path = "../api_tests.rs"]
mod tests;
