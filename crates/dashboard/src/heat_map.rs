//! The hours of the week in which money was spent: seven rows of 24 fields.

use maud::{Markup, html};

use super::panel::panel_with;
use super::text::{grouped, priced};
use reader::{HourRow, UsageSums};

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// Shades besides the empty one.
const SHADES: f64 = 5.0;

pub fn heat_map(hours: &[HourRow], zone: &str) -> Markup {
    let most = hours.iter().map(|row| value(&row.sums)).fold(0.0, f64::max);
    if most <= 0.0 {
        return html! {};
    }
    let of = |weekday: i8, hour: i8| hours.iter().find(|row| (row.weekday, row.hour) == (weekday, hour));
    let content = html! {
        div.scroll {
            table.heat {
                thead { tr {
                    th {}
                    @for hour in 0..24_i8 { th { @if hour % 3 == 0 { (hour) } } }
                } }
                tbody {
                    @for (weekday, name) in (0..).zip(DAYS) {
                        tr {
                            th scope="row" { (name) }
                            @for hour in 0..24_i8 {
                                @let sums = of(weekday, hour).map(|row| row.sums).unwrap_or_default();
                                td class={ "h" (shade(value(&sums), most)) } title=(title(name, hour, &sums)) {}
                            }
                        }
                    }
                }
            }
        }
    };
    let most = hours.iter().max_by(|a, b| value(&a.sums).total_cmp(&value(&b.sums))).map(|row| row.sums);
    let most = most.unwrap_or_default();
    let content = html! {
        (content)
        p.note { "The darker, the more was spent in that hour of the week: no colour is nothing, the darkest "
            (priced(most.cost_usd, most.counts.unpriced_calls)) "." }
    };
    panel_with("Hours of the week", format!("in {zone}"), content)
}

/// Money; where nothing has a price, a little for every call, so that the field is not empty.
fn value(sums: &UsageSums) -> f64 {
    sums.cost_usd + f64::from(u32::try_from(sums.counts.unpriced_calls).unwrap_or(u32::MAX)) * 1e-6
}

/// 0 is nothing; the darkest is the most.
fn shade(value: f64, most: f64) -> u8 {
    let shades = (value / most).sqrt() * SHADES;
    (1..=5)
        .find(|shade| shades <= f64::from(*shade) + 1e-9)
        .map_or(5, |shade| if value <= 0.0 { 0 } else { shade })
}

fn title(day: &str, hour: i8, sums: &UsageSums) -> String {
    let (cost, calls) = (priced(sums.cost_usd, sums.counts.unpriced_calls), grouped(sums.counts.api_calls));
    format!("{day} {hour}:00 to {}:00\n{cost}, {calls} calls", hour + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_amounts_are_seen_and_the_most_is_the_darkest() {
        for (value, expected) in [(0.0, 0), (0.0001, 1), (4.0, 1), (16.0, 2), (50.0, 4), (100.0, 5)] {
            assert_eq!(shade(value, 100.0), expected, "{value}");
        }
    }
}
