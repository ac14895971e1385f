//! One session of the read model: as its events describe it, and what it counts for by quarter of an hour and model.

use std::collections::HashMap;
use std::sync::Arc;

use reader::{Numbers, Quarter, Seqs, Session};
use store::{Outgoing, RecordKind, RecordNumbers, SeqSpan, View, Whose};
use types::event::{Attributes, Dimension};
use types::{CallSums, Event, Timestamp, redact};

/// A session as pages show it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its number in the store; `None` for a conversation that never ran through codemie.
    pub number: Option<i64>,
    pub session: Session,
    /// What a search looks through.
    pub words: String,
    pub tags: String,
    /// The sessions before and after it, by the last of its openings that reports one.
    pub came_from: Option<String>,
    pub went_to: Option<String>,
    pub slots: Vec<Slot>,
}

/// What a session counts for in one quarter of an hour, with one model or none.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub quarter: Quarter,
    /// Empty for what no model did.
    pub model: Arc<str>,
    pub numbers: Numbers,
}

/// Models by the names that records have for them. There are few, and each is kept once.
#[derive(Debug, Default)]
pub(super) struct ModelNames(HashMap<String, Arc<str>>);

impl ModelNames {
    /// The name that events have for it.
    fn published(&mut self, model: &str) -> Arc<str> {
        if let Some(name) = self.0.get(model) {
            return name.clone();
        }
        let cut = Dimension::cut(model.to_owned());
        let name: Arc<str> = redact::model(&cut).into();
        self.0.insert(model.to_owned(), name.clone());
        name
    }
}

/// Puts a session together.
#[derive(Debug, Default)]
pub(super) struct EntryBuilder {
    session: Option<Session>,
    /// Each with the `seq` of the event that reports it.
    came_from: Option<(i64, String)>,
    went_to: Option<(i64, String)>,
    slots: Vec<Slot>,
    places: HashMap<(Quarter, Arc<str>), usize>,
    earliest: Option<Timestamp>,
    latest: Option<Timestamp>,
}

impl EntryBuilder {
    /// Takes over an event that comes of no record.
    fn counted_event(&mut self, event: &Event, models: &mut ModelNames) {
        let (model, numbers) = Numbers::of_event(&event.attributes);
        if !numbers.is_zero() {
            self.count(event.time, &models.published(model), &numbers);
        }
        self.event(event);
    }

    /// The same of one whose call is counted by its record, in the session that owns that.
    fn event(&mut self, event: &Event) {
        self.include(event.time);
        self.session.get_or_insert_with(|| Session::begin(0, event)).apply(event, true);
        let (reported, link) = match &event.attributes {
            Attributes::Start(start) => (&start.transitioned_from, &mut self.came_from),
            Attributes::End(end) => (&end.transitioned_to, &mut self.went_to),
            _ => return,
        };
        if let Some(reported) = reported
            && link.as_ref().is_none_or(|(seq, _)| *seq <= event.seq)
        {
            *link = Some((event.seq, reported.to_string()));
        }
    }

    /// Counts something that happened at a time.
    fn count(&mut self, at: Timestamp, model: &Arc<str>, numbers: &Numbers) {
        self.include(at);
        let quarter = Quarter::of(at);
        // Most belongs to the quarter of what came before.
        let is_same = |slot: &Slot| slot.quarter == quarter && slot.model == *model;
        let place = match self.slots.last().filter(|slot| is_same(slot)) {
            Some(_) => self.slots.len() - 1,
            None => *self.places.entry((quarter, model.clone())).or_insert_with(|| {
                self.slots.push(Slot { quarter, model: model.clone(), numbers: Numbers::default() });
                self.slots.len() - 1
            }),
        };
        self.slots[place].numbers.add(numbers);
    }

    fn record(&mut self, record: &RecordNumbers, models: &mut ModelNames) {
        let model = match (&record.model, record.kind) {
            (Some(model), Some(RecordKind::Usage)) => models.published(model),
            _ => models.published(""),
        };
        self.count(record.at, &model, &numbers_of(record));
    }

    fn include(&mut self, at: Timestamp) {
        self.earliest = Some(self.earliest.map_or(at, |known| known.min(at)));
        self.latest = Some(self.latest.map_or(at, |known| known.max(at)));
    }

    /// `None` for one of which nothing but records is known.
    fn finish(
        mut self,
        number: Option<i64>,
        seqs: Seqs,
        models: &mut ModelNames,
        read_at: Timestamp,
    ) -> Option<Entry> {
        let mut session = self.session.take()?;
        for at in [self.earliest, self.latest].into_iter().flatten() {
            session.include_time(at);
        }
        session.received_at = read_at;
        session.seqs = seqs;
        // Every session counts once, in the quarter it began in.
        let one = Numbers { sessions: 1, ..Numbers::default() };
        self.count(session.started_at(), &models.published(""), &one);
        for slot in &self.slots {
            session.numbers.add(&slot.numbers);
            if slot.numbers.unpriced_calls > 0 {
                session.count_unpriced(&slot.model, slot.numbers.unpriced_calls);
            }
        }
        self.slots.shrink_to_fit();
        Some(Entry {
            number,
            words: session.search_text(),
            tags: session.tag_lines(),
            session,
            came_from: self.came_from.map(|(_, id)| id),
            went_to: self.went_to.map(|(_, id)| id),
            slots: self.slots,
        })
    }

    /// A conversation that never ran through codemie, from the events that would be sent of it.
    pub fn foreign(events: &[Outgoing], models: &mut ModelNames, read_at: Timestamp) -> Option<Entry> {
        let mut builder = Self::default();
        let mut seqs = Seqs::default();
        for event in events {
            seqs.insert(event.seq);
            builder.counted_event(event, models);
        }
        builder.finish(None, seqs, models, read_at)
    }
}

fn numbers_of(record: &RecordNumbers) -> Numbers {
    match record.kind {
        Some(RecordKind::Usage) => {
            Numbers::of_sums(&CallSums::of(&record.tokens, record.cost), record.cost.is_none())
        }
        Some(RecordKind::Tool) => Numbers {
            tool_calls: 1,
            tool_errors: i64::from(record.ok == Some(false)),
            lines_added: record.lines_added,
            lines_removed: record.lines_removed,
            ..Numbers::default()
        },
        Some(RecordKind::Prompt) => Numbers { prompts: 1, ..Numbers::default() },
        Some(RecordKind::Error) => Numbers { api_errors: 1, ..Numbers::default() },
        None => Numbers::default(),
    }
}

/// Sessions as the store has them.
pub(super) fn read_entries(
    view: &View<'_>,
    whose: Whose,
    models: &mut ModelNames,
    read_at: Timestamp,
) -> Result<Vec<Entry>, store::Error> {
    let mut builders: HashMap<i64, EntryBuilder> = HashMap::new();
    view.each_event_without_record(whose, |session, event, recorded| {
        let builder = builders.entry(session).or_default();
        if recorded { builder.event(&event) } else { builder.counted_event(&event, models) }
    })?;
    view.each_record_numbers(whose, |record| {
        builders.entry(record.session).or_default().record(&record, models);
    })?;
    let spans = view.seq_spans(whose)?;
    let mut entries = Vec::with_capacity(builders.len());
    for (session, builder) in builders {
        let seqs = match spans.get(&session) {
            Some(SeqSpan { events, first, last, .. }) if *events == last - first + 1 => {
                Seqs::of_range(*first, *last)
            }
            Some(_) => {
                let mut seqs = Seqs::default();
                for seq in view.seqs(session)? {
                    seqs.insert(seq);
                }
                seqs
            }
            None => Seqs::default(),
        };
        entries.extend(builder.finish(Some(session), seqs, models, read_at));
    }
    Ok(entries)
}
