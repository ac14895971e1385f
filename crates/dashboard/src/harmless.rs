//! Pages on their way to a browser: what people read of names and titles from outside cannot reorder what stands around it, as
//! on a terminal ([`format::text`]). maud has escaped the markup; characters that steer are left by it.

use format::text::clean_lines;
use maud::Markup;

/// The markup with harmless texts and tooltips. Other attributes stay as they are: addresses are encoded, and the values of a
/// form go back to the server.
pub fn harmless(markup: &Markup) -> String {
    let mut page = String::with_capacity(markup.0.len());
    let mut rest = markup.0.as_str();
    // Escaped text holds no angle brackets, so each one is a tag's.
    while let Some((text, from_tag)) = rest.split_once('<') {
        page += &clean_lines(text);
        page.push('<');
        let end = from_tag.find('>').map_or(from_tag.len(), |at| at + 1);
        push_tag(&mut page, &from_tag[..end]);
        rest = &from_tag[end..];
    }
    page += &clean_lines(rest);
    page
}

const TOOLTIP: &str = " title=\"";

fn push_tag(page: &mut String, tag: &str) {
    let tooltip = tag.split_once(TOOLTIP).and_then(|(before, rest)| Some((before, rest.split_once('"')?)));
    match tooltip {
        Some((before, (text, after))) => {
            page.extend([before, TOOLTIP, &clean_lines(text), "\"", after]);
        }
        None => *page += tag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maud::html;

    #[test]
    fn texts_and_tooltips_cannot_reorder_and_values_stay_exact() {
        let name = "exe\u{202e}gpj <b>";
        let markup = html! {
            p title=(name) class="name" { (name) " · größer" br; "\u{2066}x\u{2069}\n" }
            input name="q" value=(name);
            (name)
        };
        let (shown, exact) = ("exe\u{fffd}gpj &lt;b&gt;", "exe\u{202e}gpj &lt;b&gt;");
        assert_eq!(
            harmless(&markup),
            format!(
                "<p title=\"{shown}\" class=\"name\">{shown} · größer<br>\u{fffd}x\u{fffd}\n</p>\
                 <input name=\"q\" value=\"{exact}\">{shown}"
            )
        );
    }
}
