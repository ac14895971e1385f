//! Components of pages: panels with a heading, figures in a row, facts in a list.

use maud::{Markup, Render, html};

/// A part of a page with its heading.
pub fn panel(title: &str, content: impl Render) -> Markup {
    html! { section.panel { h2 { (title) } (content) } }
}

/// The same with a remark beside the heading.
pub fn panel_with(title: &str, aside: impl Render, content: impl Render) -> Markup {
    html! { section.panel { h2 { (title) span.aside { (aside) } } (content) } }
}

/// A large number with its name, and small print below it.
#[derive(Debug)]
pub struct Figure {
    name: &'static str,
    value: Markup,
    hints: Vec<Markup>,
}

pub fn figure(name: &'static str, value: impl Render) -> Figure {
    Figure { name, value: value.render(), hints: Vec::new() }
}

impl Figure {
    #[must_use]
    pub fn hint(mut self, hint: impl Render) -> Self {
        self.hints.push(hint.render());
        self
    }

    /// A hint where there is one.
    #[must_use]
    pub fn maybe(self, hint: Option<impl Render>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }
}

/// Figures side by side.
pub fn figures(figures: &[Figure]) -> Markup {
    html! {
        dl.totals {
            @for Figure { name, value, hints } in figures {
                div { dt { (name) } dd { (value) } @for hint in hints { dd.hint { (hint) } } }
            }
        }
    }
}

/// Names with their values, one per line; a name without a value is left out.
pub fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, Option<Markup>)>) -> Markup {
    html! {
        dl.facts {
            @for (name, value) in facts {
                @if let Some(value) = value { dt { (name) } dd { (value) } }
            }
        }
    }
}
