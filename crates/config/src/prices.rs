//! Prices of a user's own: `[prices.MODEL]` in the file, in dollars per million tokens.

use std::ffi::OsString;
use std::path::Path;

use pricing::{PriceList, Rates};
use toml_edit::{Item, TableLike};

use super::Settings;

/// The table that holds one table per model.
pub(super) const TABLE: &str = "prices";
const KEYS: &[&str] = &["input", "output", "cacheRead", "cacheWrite", "cacheWrite1h"];

/// The price list in force by the file alone: for those who price calls and need no other setting.
pub fn price_list(file: &Path) -> PriceList {
    read(&mut Settings::read(Some(file), |_| None))
}

/// A model whose prices cannot be read keeps those of the table, and is reported.
pub(super) fn read<V: Fn(&str) -> Option<OsString>>(settings: &mut Settings<V>) -> PriceList {
    let Some(item) = settings.document.get(TABLE) else { return PriceList::default() };
    let Some(models) = item.as_table_like() else {
        settings.problem("config.toml: prices must be tables: [prices.MODEL]".to_owned());
        return PriceList::default();
    };
    let (mut own, mut problems) = (Vec::new(), Vec::new());
    for (model, item) in models.iter() {
        match item.as_table_like().ok_or("it must be a table".to_owned()).and_then(rates) {
            Ok(rates) => own.push((model.to_owned(), rates)),
            Err(why) => problems.push(format!("config.toml: prices of {model} are left out: {why}")),
        }
    }
    for problem in problems {
        settings.problem(problem);
    }
    PriceList::with_own(own)
}

/// As in the table: where no price of cached input is given, it is billed as input; the 1-hour cache has a price or none.
fn rates(table: &dyn TableLike) -> Result<Rates, String> {
    if let Some((key, _)) = table.iter().find(|(key, _)| !KEYS.contains(key)) {
        // A name with a point in it, without quotes around it, is two names.
        return Err(format!("{key} means nothing here; a name with points in it needs quotes"));
    }
    let optional = |key: &str| table.get(key).map(|item| rate(key, item)).transpose();
    let given = |key: &str| optional(key)?.ok_or_else(|| format!("{key} is missing"));
    let input = given("input")?;
    Ok(Rates {
        input,
        output: given("output")?,
        cache_read: optional("cacheRead")?.unwrap_or(input),
        cache_write_5m: optional("cacheWrite")?.unwrap_or(input),
        cache_write_1h: optional("cacheWrite1h")?,
    })
}

/// Dollars per million tokens, as pico-dollars per token, which are whole numbers.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds of the check")]
fn rate(key: &str, item: &Item) -> Result<u64, String> {
    let whole = || item.as_integer().and_then(|number| i32::try_from(number).ok()).map(f64::from);
    let number = item.as_float().or_else(whole).filter(|number| (0.0..=1e6).contains(number));
    let pico = number.ok_or_else(|| format!("{key} must be dollars per million tokens"))? * 1e6;
    if (pico - pico.round()).abs() > 1e-3 {
        return Err(format!("{key} has more than six decimals"));
    }
    Ok(pico.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn own_prices_are_read_and_bad_ones_are_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[prices.mine]\ninput = 1\noutput = 2.5\n\
                    [prices.'gpt-5.5']\ninput = 0.1\noutput = 2\ncacheRead = 0.01\ncacheWrite = 0.2\ncacheWrite1h = 0.3\n\
                    [prices.free]\ninput = 0\noutput = 0\n\
                    [prices.half]\ninput = 1\n\
                    [prices.text]\ninput = 'a'\noutput = 1\n\
                    [prices.fine]\ninput = 0.0000001\noutput = 1\n\
                    [prices.gpt-5.6]\ninput = 1\noutput = 1\n\
                    [prices]\nflat = 1\n";
        // A table that is begun twice is no TOML: the last one stands in a file of its own.
        std::fs::write(file.path(), text.replace("[prices]\nflat = 1\n", "")).unwrap();
        let config = Config::load(Some(file.path()), |_| None, &[]);
        let own = config.prices.own();
        let mine = Rates {
            input: 1_000_000,
            output: 2_500_000,
            cache_read: 1_000_000,
            cache_write_5m: 1_000_000,
            cache_write_1h: None,
        };
        assert_eq!(own["mine"], mine);
        let five = Rates {
            input: 100_000,
            output: 2_000_000,
            cache_read: 10_000,
            cache_write_5m: 200_000,
            cache_write_1h: Some(300_000),
        };
        assert_eq!((own["gpt-5.5"], own["free"].input, own.len()), (five, 0, 3));
        assert_eq!(
            config.problems,
            [
                "config.toml: prices of half are left out: output is missing",
                "config.toml: prices of text are left out: input must be dollars per million tokens",
                "config.toml: prices of fine are left out: input has more than six decimals",
                "config.toml: prices of gpt-5 are left out: 6 means nothing here; a name with points in it needs quotes",
            ]
        );
        assert_eq!(price_list(file.path()), config.prices);
        std::fs::write(file.path(), "[prices]\nflat = 1\n").unwrap();
        let config = Config::load(Some(file.path()), |_| None, &[]);
        assert_eq!(config.problems, ["config.toml: prices of flat are left out: it must be a table"]);
        assert_eq!(Settings::read(Some(file.path()), |_| None).unknown(&[]), []);
    }
}
