//! Logging in: a token is exchanged for a cookie, which every later request shows.
//!
//! The cookie holds the time it expires and is signed with the hash of its token. So any node that can look up the token can
//! check it, no node has to store it, and revoking a token revokes its cookies. Only cookies that a logout ended are
//! stored, until they would have expired.

use hmac::{Hmac, KeyInit, Mac};
use maud::{DOCTYPE, Markup, html};
use sha2::Sha256;

use super::frame::outside_page;
use types::Timestamp;
use types::hex::hex;

/// How long a cookie is good: a working week, so that people need not look for the token every morning.
pub const GOOD_FOR_MS: i64 = 7 * 86_400_000;

/// A cookie's value: which token, until when, and the signature of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    pub token: String,
    pub until: Timestamp,
    pub(super) signature: [u8; 32],
}

type Signer = Hmac<Sha256>;

fn signer(key: &[u8; 32], token: &str, until: Timestamp) -> Signer {
    // A key shorter than a block is filled up with zeros; done here, it cannot fail.
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut signer = Signer::new(&block.into());
    signer.update(b"codemie dashboard cookie\0");
    signer.update(&until.0.to_be_bytes());
    signer.update(token.as_bytes());
    signer
}

impl Pass {
    pub fn sign(key: &[u8; 32], token: &str, until: Timestamp) -> Self {
        let signature = signer(key, token, until).finalize().into_bytes().into();
        Self { token: token.to_owned(), until, signature }
    }

    /// Whether it was signed with this key and is still good. In constant time.
    pub fn holds(&self, key: &[u8; 32], now: Timestamp) -> bool {
        let right = signer(key, &self.token, self.until).verify((&self.signature).into()).is_ok();
        right && now < self.until
    }

    /// Of letters and digits alone, as a cookie may hold it: `until.signature.token`, all in hexadecimal.
    pub fn to_cookie(&self) -> String {
        format!("{:x}.{}.{}", self.until.0, hex(&self.signature), hex(self.token.as_bytes()))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let until = Timestamp(i64::from_str_radix(parts.next()?, 16).ok()?);
        let signature = unhex(parts.next()?)?.try_into().ok()?;
        let token = String::from_utf8(unhex(parts.next()?)?).ok()?;
        parts.next().is_none().then_some(Self { token, until, signature })
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// The value of a cookie of this name in a `Cookie` header.
pub fn cookie<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    header
        .split(';')
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

/// Where to go after the login: a page of ours, never another server.
pub fn safe_target(next: &str) -> &str {
    let ours = next.starts_with('/')
        && !next[1..].starts_with(['/', '\\'])
        && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if ours { next } else { "/" }
}

pub fn page(next: &str, refused: bool) -> Markup {
    let content = html! {
        div.panel.door {
            h1 { "Log in" }
            p.lead {
                "With a token of role read. " code { "codemie backend serve" }
                " wrote one to a file at its first start; "
                code { "codemie backend token create --role read" } " makes another."
            }
            @if refused {
                p.note.bad role="alert" {
                    "This is no token that may read. Check that it is whole, and not revoked."
                }
            }
            form method="post" action="/login" {
                input type="hidden" name="next" value=(next);
                label {
                    "Token"
                    input type="password" name="token" required autofocus
                        autocomplete="current-password" spellcheck="false";
                }
                button.primary type="submit" { "Log in" }
            }
        }
    };
    outside_page("Log in", &content)
}

/// A page of ours that leads to another one, so that the browser sends the cookie.
pub fn onward(target: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content={ "0;url=" (target) };
                title { "codemie" }
            }
            body { a href=(target) { "Go on to the dashboard" } }
        }
    }
}

/// For a local dashboard, whose only key is the address that the command printed.
pub fn closed(command: &str) -> Markup {
    let content = html! {
        div.panel.door {
            h1 { "This address is used up" }
            p.lead { "It lets one browser in, once. " code { (command) } " prints a new one." }
        }
    };
    outside_page("Closed", &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    #[test]
    fn a_pass_holds_with_its_key_until_its_time() {
        let pass = Pass::sign(&KEY, "read-1", Timestamp(1000));
        assert!(pass.holds(&KEY, Timestamp(999)));
        assert!(!pass.holds(&KEY, Timestamp(1000)));
        assert!(!pass.holds(&[8; 32], Timestamp(0)));
        let again = Pass::parse(&pass.to_cookie()).unwrap();
        assert_eq!(again, pass);
        for forged in [
            Pass { until: Timestamp(2000), ..pass.clone() },
            Pass { token: "read-2".into(), ..pass.clone() },
            Pass { signature: [0; 32], ..pass },
        ] {
            assert!(!forged.holds(&KEY, Timestamp(0)), "{forged:?}");
        }
    }

    #[test]
    fn malformed_passes_are_refused() {
        let whole = Pass::sign(&KEY, "ä", Timestamp(1)).to_cookie();
        assert!(Pass::parse(&whole).is_some());
        for text in
            ["", "..", "1.00.61", &whole[..whole.len() - 1], &format!("{whole}.00"), &format!("x{whole}")]
        {
            assert_eq!(Pass::parse(text), None, "{text}");
        }
    }

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        assert_eq!(cookie("a=1; codemie=x.y; b=2", "codemie"), Some("x.y"));
        assert_eq!(cookie("xcodemie=1", "codemie"), None);
        assert_eq!(cookie("", "codemie"), None);
    }

    #[test]
    fn a_login_leads_to_no_other_server() {
        for (next, target) in [
            ("/", "/"),
            ("/sessions?q=a%20b", "/sessions?q=a%20b"),
            ("", "/"),
            ("sessions", "/"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("/\t/evil.example", "/"),
            ("https://evil.example/", "/"),
            ("/a\r\nSet-Cookie: x=y", "/"),
        ] {
            assert_eq!(safe_target(next), target, "{next:?}");
        }
    }
}
