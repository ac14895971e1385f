//! How full a session's context is: in percent where the window of its model is certain, else in tokens.

use store::{self, View};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextFill {
    /// What its latest call was given to read.
    pub tokens: u64,
    /// `None`: which window is in use is not known.
    pub percent: Option<u64>,
}

impl ContextFill {
    pub fn of(view: &View<'_>, session: i64) -> Result<Option<Self>, store::Error> {
        let latest = view.last_context(session)?.filter(|(tokens, _)| *tokens > 0);
        Ok(latest.map(|(tokens, model)| Self { tokens, percent: pricing::window::filled(&model, tokens) }))
    }

    /// `42 %` or `84.2k`.
    pub fn in_short(self) -> String {
        self.percent.map_or_else(|| format::count(self.tokens), |percent| format!("{percent} %"))
    }

    /// `84.2k (42 %)` or `84.2k`.
    pub fn whole(self) -> String {
        let tokens = format::count(self.tokens);
        self.percent.map_or_else(|| tokens.clone(), |percent| format!("{tokens} ({percent} %)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::meter::record::Fact;
    use store::session::lifecycle::ConversationStart;
    use store::session::testing::{World, usage};

    #[test]
    fn the_latest_call_fills_the_window_of_its_model() {
        let mut world = World::new();
        let (_, started) = world.start(ConversationStart::Fresh);
        world.bind(started.session, "a").unwrap();
        let n = world.session(started.session).n;
        assert_eq!(world.store.read(|view| ContextFill::of(view, n)).unwrap(), None);
        for (number, model, cached, short, whole) in [
            (1, "claude-haiku-4-5", 84_000, "42 %", "84.0k (42 %)"),
            (2, "a-model-of-tomorrow", 84_000, "84.0k", "84.0k"),
            (3, "claude-haiku-4-5", 300_000, "300k", "300k"),
        ] {
            let mut call = usage(&format!("m{number}"), world.wait(1000), 1);
            let Fact::Usage(usage) = &mut call.record.fact else { panic!("a call") };
            (usage.model, usage.tokens.cache_read) = (model.into(), cached);
            (usage.tokens.input, usage.tokens.cache_write_5m, usage.tokens.cache_write_1h) = (0, 0, 0);
            world.feed(started.session, number, &[call]);
            let fill = world.store.read(|view| ContextFill::of(view, n)).unwrap().unwrap();
            assert_eq!((fill.in_short().as_str(), fill.whole().as_str()), (short, whole), "{model}");
        }
    }
}
