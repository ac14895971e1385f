//! The time zone of this machine.
//!
//! jiff finds zones by name, and lists every file of the time zone database for it: milliseconds, which the start of every
//! agent would pay. The zone that the system names is one file; it is read here, by the rules of tzset(3), and no other.

use std::ffi::OsStr;
use std::path::{Component, Path};

use jiff::tz::TimeZone;

use super::file::read_at_most;

const LOCAL: &str = "/etc/localtime";

/// Zones have some kilobytes.
const MAX_BYTES: u64 = 1 << 20;

/// Where systems keep their database.
const DATABASES: [&str; 4] =
    ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/zoneinfo", "/etc/zoneinfo"];

/// The zone that the environment or the system names; UTC where neither names one.
pub fn local() -> TimeZone {
    let set = |name: &str| std::env::var_os(name);
    named(set("TZ").as_deref(), set("TZDIR").as_deref(), |path| read_at_most(path, MAX_BYTES).ok())
}

/// The zone of an IANA name, like `Europe/Berlin`, or a rule as TZ has it; `None`: there is none of that name here.
pub fn of_name(name: &str) -> Option<TimeZone> {
    let database = std::env::var_os("TZDIR");
    if name.eq_ignore_ascii_case("utc") {
        return Some(TimeZone::UTC);
    }
    found(name, database.as_deref(), |path| read_at_most(path, MAX_BYTES).ok())
}

fn named(
    name: Option<&OsStr>,
    database: Option<&OsStr>,
    read: impl Fn(&Path) -> Option<Vec<u8>>,
) -> TimeZone {
    let file = |path: &Path| TimeZone::tzif("", &read(path)?).ok();
    let Some(name) = name else { return file(LOCAL.as_ref()).unwrap_or(TimeZone::UTC) };
    let Some(name) = name.to_str() else { return TimeZone::UTC };
    let name = name.strip_prefix(':').unwrap_or(name);
    let path = Path::new(name);
    if path.is_absolute() {
        return file(path).unwrap_or(TimeZone::UTC);
    }
    found(name, database, read).unwrap_or(TimeZone::UTC)
}

fn found(name: &str, database: Option<&OsStr>, read: impl Fn(&Path) -> Option<Vec<u8>>) -> Option<TimeZone> {
    let file = |path: &Path| TimeZone::tzif("", &read(path)?).ok();
    let path = Path::new(name);
    let plain = !name.is_empty() && path.components().all(|part| matches!(part, Component::Normal(_)));
    let mut databases = database.map(Path::new).into_iter().chain(DATABASES.map(Path::new));
    let found = if plain { databases.find_map(|folder| file(&folder.join(path))) } else { None };
    found.or_else(|| TimeZone::posix(name).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of the database that holds nothing but a rule.
    fn file(rule: &str) -> Vec<u8> {
        // Version 2: an empty block of version 1, then a block with one type of time, then the rule.
        let block = |types: u8, letters: u8| {
            let mut block = b"TZif2".to_vec();
            block.extend([0; 15]);
            block.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, types, 0, 0, 0, letters]);
            block
        };
        let mut bytes = block(1, 1);
        bytes.extend([0; 7]);
        bytes.extend(block(1, 1));
        bytes.extend([0; 7]);
        bytes.extend(format!("\n{rule}\n").bytes());
        bytes
    }

    #[test]
    fn by_the_rules_of_tzset() {
        let files: [(&str, &str); 5] = [
            ("/etc/localtime", "<+01>-1"),
            ("/usr/share/zoneinfo/Two", "<+02>-2"),
            ("/usr/share/zoneinfo/Far/Three", "<+03>-3"),
            ("/own/Two", "<+09>-9"),
            ("/somewhere/file", "<+05>-5"),
        ];
        let read = |path: &Path| {
            files.iter().find(|(known, _)| Path::new(known) == path).map(|(_, rule)| file(rule))
        };
        let ten = jiff::Timestamp::from_second(1_794_787_200).unwrap();
        for (name, database, hours) in [
            (None, None, 1),
            (Some(""), None, 0),
            (Some("UTC"), None, 0),
            (Some("Two"), None, 2),
            (Some(":Two"), None, 2),
            (Some("Far/Three"), None, 3),
            (Some("Two"), Some("/own"), 9),
            (Some("Far/Three"), Some("/own"), 3),
            (Some("/somewhere/file"), None, 5),
            (Some("/nowhere"), None, 0),
            (Some("EST5EDT,M3.2.0,M11.1.0"), None, -5),
            (Some("<+04>-4"), None, 4),
            (Some("../zoneinfo/Two"), None, 0),
            (Some("No/Such"), None, 0),
        ] {
            let zone = named(name.map(OsStr::new), database.map(OsStr::new), read);
            assert_eq!(zone.to_offset(ten).seconds(), hours * 3600, "{name:?} in {database:?}");
        }
        for name in ["", "No/Such", "../zoneinfo/Two", "/somewhere/file", "two words"] {
            assert!(found(name, None, read).is_none(), "{name:?}");
        }
        assert!(found("Two", None, read).is_some() && of_name("utc").is_some());
        assert_eq!(named(None, None, |_| None).to_offset(ten).seconds(), 0);
        assert_eq!(named(None, None, |_| Some(b"TZif2 torn".to_vec())).to_offset(ten).seconds(), 0);
    }

    #[test]
    fn a_real_file_winter_and_summer() {
        let read = |path: &Path| std::fs::read(path).ok();
        if !Path::new("/usr/share/zoneinfo/Europe/Berlin").exists() {
            return testing::left_out("there is no time zone database");
        }
        let zone = named(Some(OsStr::new("Europe/Berlin")), None, read);
        for (at, hours) in
            [("2026-01-15T12:00:00Z", 1), ("2026-07-15T12:00:00Z", 2), ("2049-07-15T12:00:00Z", 2)]
        {
            assert_eq!(zone.to_offset(at.parse().unwrap()).seconds(), hours * 3600, "{at}");
        }
    }
}
