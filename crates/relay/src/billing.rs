//! How a call is paid for, from the kind of credential that its agent sent. Nothing of the credential is kept.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use types::Billing;

use crate::meter::Api;

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
