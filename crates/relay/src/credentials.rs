//! The header that authenticates towards a route's upstream, where the user's settings give one.

use std::io;
use std::process::Stdio;
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::Auth;
use crate::meter::Api;
use types::Billing;

/// The value of one route. A command is run once; after a 401 it is run again for the next request.
pub(crate) struct Credentials {
    header: HeaderName,
    source: Source,
}

enum Source {
    Static(HeaderValue),
    Command { argv: Vec<String>, cached: Mutex<Cached> },
    Missing { why: String },
}

#[derive(Default)]
struct Cached {
    value: Option<HeaderValue>,
    /// When a 401 last made the value be fetched again.
    renewed: Option<Instant>,
}

/// A command whose value was just fetched again and refused again is not run for every further request.
const RENEWAL_PAUSE: Duration = Duration::from_secs(30);

/// A command that asks a person something would otherwise keep the agent waiting for ever.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

impl Credentials {
    /// The error names the header, never the value.
    pub fn new(auth: &Auth) -> Result<Self, String> {
        let (header, source) = match auth {
            Auth::Static { header, value } => (header.as_str(), Source::Static(header_value(header, value)?)),
            Auth::Command { header, argv } if argv.is_empty() => {
                return Err(format!("the command for header {header} is empty"));
            }
            Auth::Command { header, argv } => {
                (header.as_str(), Source::Command { argv: argv.clone(), cached: Mutex::default() })
            }
            Auth::Missing { why } => ("authorization", Source::Missing { why: why.clone() }),
        };
        let header = HeaderName::from_bytes(header.as_bytes())
            .map_err(|_| format!("{header:?} is no name of a header; correct proxy.AGENT.auth"))?;
        Ok(Self { header, source })
    }

    pub fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Or why there is none, and what to do about it.
    pub async fn value(&self) -> Result<HeaderValue, String> {
        let (argv, cached) = match &self.source {
            Source::Static(value) => return Ok(value.clone()),
            Source::Missing { why } => return Err(why.clone()),
            Source::Command { argv, cached } => (argv, cached),
        };
        // Held while the command runs: several requests at once run it once.
        let mut cached = cached.lock().await;
        if let Some(value) = &cached.value {
            return Ok(value.clone());
        }
        let value = run(argv, self.header.as_str(), COMMAND_LIMIT).await;
        let value = value.map_err(|reason| format!("{reason}; check proxy.AGENT.auth"))?;
        cached.value = Some(value.clone());
        Ok(value)
    }

    /// The upstream answered 401. That answer passes; the next request comes with a new value.
    pub fn refused(&self) {
        // Held by another: it is being fetched just now.
        if let Source::Command { cached, .. } = &self.source
            && let Ok(mut cached) = cached.try_lock()
            && cached.renewed.is_none_or(|at| at.elapsed() > RENEWAL_PAUSE)
        {
            *cached = Cached { value: None, renewed: Some(Instant::now()) };
        }
    }
}

/// A command's arguments may hold a secret as well.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("header", &self.header).finish_non_exhaustive()
    }
}

/// A command and whatever it has started. Given up, all of them end: a script's own end leaves what it waits for.
struct Group(Option<Pid>);

impl Group {
    /// What it has left running on purpose stays.
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

async fn run(argv: &[String], header: &str, limit: Duration) -> Result<HeaderValue, String> {
    let program = &argv[0];
    let cannot = |error: io::Error| format!("{program} cannot be run: {error}");
    let child = Command::new(program)
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(cannot)?;
    let group = Group(child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())));
    let Ok(output) = tokio::time::timeout(limit, child.wait_with_output()).await else {
        return Err(format!("{program} did not end within {} seconds", limit.as_secs()));
    };
    group.ended();
    let output = output.map_err(cannot)?;
    if !output.status.success() {
        return Err(format!("{program} failed ({})", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let text = text.trim();
    if text.is_empty() {
        return Err(format!("{program} printed nothing"));
    }
    if text.contains('\n') {
        return Err(format!("{program} printed more than one line"));
    }
    header_value(header, text)
}

fn header_value(header: &str, value: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| format!("the value of header {header} has characters that no header may have"))?;
    value.set_sensitive(true);
    Ok(value)
}

// How a call is paid for, from the kind of credential that its agent sent. Nothing of the credential is kept.

/// `None` where the credential's kind does not tell, as that of a gateway's own. `target`: path and query.
pub(crate) fn billing_of(api: Api, headers: &HeaderMap, target: &str) -> Option<Billing> {
    let has = |name: &str| headers.get(name).is_some_and(|value| !value.is_empty());
    let bearer = || {
        let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start())
    };
    let begins = |with: &str| bearer().is_some_and(|token| token.starts_with(with));
    match api {
        Api::Messages if begins("sk-ant-oat") => Some(Billing::Plan),
        Api::Messages if has("x-api-key") || begins("sk-ant-api") => Some(Billing::Api),
        Api::Responses | Api::ChatCompletions => {
            let path = target.split('?').next().unwrap_or_default();
            let by_login = has("chatgpt-account-id") || path.split('/').any(|part| part == "backend-api");
            if by_login { Some(Billing::Plan) } else { begins("sk-").then_some(Billing::Api) }
        }
        Api::Gemini => {
            let query = target.split_once('?').map_or("", |(_, query)| query);
            let in_query =
                query.split('&').any(|pair| pair.strip_prefix("key=").is_some_and(|key| !key.is_empty()));
            (has("x-goog-api-key") || in_query).then_some(Billing::Api)
        }
        Api::Messages => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(folder: &std::path::Path) -> Credentials {
        let script = format!("echo x >> {0}/runs; echo Bearer $(wc -l < {0}/runs)", folder.display());
        let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
        Credentials::new(&Auth::Command { header: "authorization".to_owned(), argv }).unwrap()
    }

    #[tokio::test]
    async fn a_command_is_run_once_and_once_more_after_a_refusal() {
        let folder = tempfile::tempdir().unwrap();
        let credentials = counting(folder.path());
        assert_eq!(credentials.value().await.unwrap(), "Bearer 1");
        assert_eq!(credentials.value().await.unwrap(), "Bearer 1");
        credentials.refused();
        assert_eq!(credentials.value().await.unwrap(), "Bearer 2");
        credentials.refused();
        assert_eq!(credentials.value().await.unwrap(), "Bearer 2", "refused again: not run for each request");
    }

    /// The pipe's other end is closed when the last of them has ended.
    #[tokio::test]
    async fn a_command_that_takes_too_long_ends_with_all_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let script = format!("exec 1>/dev/null; sleep 600 > {} & wait", pipe.display());
        let argv = ["sh", "-c", &script].map(str::to_owned);
        let reader =
            tokio::task::spawn_blocking(move || std::process::Command::new("cat").arg(pipe).output());
        let error = run(&argv, "x", Duration::from_millis(300)).await.unwrap_err();
        assert!(error.contains("did not end"), "{error}");
        assert_eq!(reader.await.unwrap().unwrap().stdout, b"");
    }

    #[tokio::test]
    async fn errors_and_debug_do_not_show_the_value() {
        let fixed = Auth::Static { header: "x-api-key".to_owned(), value: "hush\nhush".to_owned() };
        let error = Credentials::new(&fixed).unwrap_err();
        assert!(error.contains("x-api-key") && !error.contains("hush"), "{error}");
        let fixed = Auth::Static { header: "x-api-key".to_owned(), value: "hush".to_owned() };
        assert!(!format!("{:?}", Credentials::new(&fixed).unwrap()).contains("hush"));
        let failing = Auth::Command { header: "x".to_owned(), argv: vec!["false".to_owned()] };
        assert!(Credentials::new(&failing).unwrap().value().await.unwrap_err().contains("false failed"));
    }
}

#[cfg(test)]
mod billing_tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    #[test]
    fn the_kind_of_credential_shows_who_pays() {
        let (api, plan) = (Some(Billing::Api), Some(Billing::Plan));
        for (kind, headers, target, billing) in [
            (Api::Messages, &[("x-api-key", "sk-ant-api03-x")][..], "/v1/messages", api),
            (Api::Messages, &[("authorization", "Bearer sk-ant-oat01-x")], "/v1/messages", plan),
            (Api::Messages, &[("authorization", "bearer  sk-ant-api03-x")], "/v1/messages", api),
            (Api::Messages, &[("authorization", "Bearer of-a-gateway")], "/v1/messages", None),
            (Api::Messages, &[("x-api-key", "")], "/v1/messages", None),
            (Api::Messages, &[], "/v1/messages?key=x", None),
            (Api::Responses, &[("authorization", "Bearer sk-proj-x")], "/v1/responses", api),
            (Api::ChatCompletions, &[("authorization", "Bearer sk-x")], "/v1/chat/completions", api),
            (Api::Responses, &[("authorization", "Bearer eyJ")], "/v1/responses", None),
            (
                Api::Responses,
                &[("authorization", "Bearer eyJ"), ("chatgpt-account-id", "a")],
                "/codex/responses",
                plan,
            ),
            (Api::Responses, &[("authorization", "Bearer eyJ")], "/backend-api/codex/responses", plan),
            (Api::Responses, &[("authorization", "Basic sk-x")], "/v1/responses", None),
            (Api::Gemini, &[("x-goog-api-key", "AIza")], "/v1beta/models/m:generateContent", api),
            (Api::Gemini, &[], "/v1beta/models/m:generateContent?alt=sse&key=AIza", api),
            (Api::Gemini, &[("authorization", "Bearer ya29")], "/v1internal:generateContent", None),
        ] {
            let given = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            assert_eq!(billing_of(kind, &given.collect(), target), billing, "{headers:?} {target}");
        }
    }
}
