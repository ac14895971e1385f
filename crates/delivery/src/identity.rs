//! Which machine and user the events name. The machine's own id never leaves it: events carry a salted hash.

use std::path::Path;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use config::delivery::User;
use os::file::text_at_most;
use store::{Error, Store};
use types::hex::hex;

/// The setting of the store that holds the salt. With another salt, receivers would see another machine.
const SALT: &str = "machine.salt";

/// `/etc/passwd` of a large site.
const MAX_SYSTEM_FILE: u64 = 16 << 20;

/// The longest name that receivers take.
const LONGEST: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The hash: different for each machine, and not its id.
    pub machine: String,
    pub user: Option<String>,
}

impl Identity {
    pub fn of(store: &mut Store, user: &User) -> Result<Self, Error> {
        let salt = match store.read(|view| view.setting(SALT))? {
            Some(salt) => salt,
            None => store.write(|tx| {
                if let Some(salt) = tx.setting(SALT)? {
                    Ok::<_, Error>(salt)
                } else {
                    let salt = Uuid::new_v4().simple().to_string();
                    tx.set_setting(SALT, &salt)?;
                    Ok(salt)
                }
            })?,
        };
        let user = match user {
            User::Login => login_name(),
            User::Named(name) => Some(name[..name.floor_char_boundary(LONGEST)].to_owned()),
            User::Nobody => None,
        };
        Ok(Self { machine: hash(&salt, &machine_id()), user })
    }
}

/// 128 bits, enough to distinguish machines.
fn hash(salt: &str, id: &str) -> String {
    let digest = Sha256::digest(format!("{salt}\0{id}").as_bytes());
    hex(&digest[..16])
}

/// The system's own id. Without one, the salt alone distinguishes this machine from others.
fn machine_id() -> String {
    let files = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
    let id = files
        .into_iter()
        .filter_map(|file| text_at_most(Path::new(file), MAX_SYSTEM_FILE).ok())
        .find(|id| !id.trim().is_empty());
    id.unwrap_or_default().trim().to_owned()
}

/// The name of the user whose process this is.
pub fn login_name() -> Option<String> {
    let uid = rustix::process::getuid().as_raw();
    let named =
        text_at_most(Path::new("/etc/passwd"), MAX_SYSTEM_FILE).ok().and_then(|text| name_of(&text, uid));
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    named.or_else(|| var("LOGNAME")).or_else(|| var("USER"))
}

fn name_of(passwd: &str, uid: u32) -> Option<String> {
    let mut entries = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = entries.find(|entry| entry.get(2).and_then(|id| id.parse().ok()) == Some(uid))?;
    entry.first().filter(|name| !name.is_empty()).map(|name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::session::testing::World;

    #[test]
    fn machine_hash_is_stable_and_depends_on_salt_and_id() {
        let mut world = World::new();
        let first = Identity::of(&mut world.store, &User::Nobody).unwrap();
        let mut another = world.another();
        assert_eq!(Identity::of(&mut another, &User::Nobody).unwrap(), first);
        assert_eq!((first.machine.len(), &first.user), (32, &None));
        assert_ne!(hash("salt", "id"), hash("other", "id"));
        assert_ne!(hash("salt", "id"), hash("salt", "other"));
        let named = Identity::of(&mut world.store, &User::Named("team-a".into())).unwrap();
        assert_eq!(named.user.as_deref(), Some("team-a"));
    }

    #[test]
    fn login_name_is_found_by_user_id() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\ndev:x:1000:1000::/home/dev:/bin/bash\n";
        assert_eq!(name_of(passwd, 1000).as_deref(), Some("dev"));
        assert_eq!(name_of(passwd, 7), None);
    }
}
