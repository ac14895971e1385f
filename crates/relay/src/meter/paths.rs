//! Which requests are calls of a model.

use http::Method;

use super::Api;

/// How the paths of calls end.
const ENDS: [(&str, Api); 6] = [
    ("/messages", Api::Messages),
    ("/chat/completions", Api::ChatCompletions),
    ("/responses", Api::Responses),
    // Codex's remote compaction: a model writes the summary.
    ("/responses/compact", Api::Responses),
    (":generateContent", Api::Gemini),
    (":streamGenerateContent", Api::Gemini),
];

/// The form of the call that a request makes; `None`: it makes none that uses tokens (counting tokens, lists of models, files,
/// probes, telemetry). `path` is without the secret and the query; whatever stands before an API's own part of it makes no
/// difference. `hint` is the form of the route's calls: it decides where the path is empty, because the address is the whole
/// endpoint.
///
/// A `GET` is a call only as the handshake of a WebSocket, which the caller recognises.
pub fn api_of(method: &Method, path: &str, hint: Option<Api>) -> Option<Api> {
    let path = path.trim_end_matches('/');
    if *method == Method::GET {
        return path.ends_with("/responses").then_some(Api::Responses);
    }
    if *method != Method::POST {
        return None;
    }
    if path.is_empty() {
        return hint;
    }
    ENDS.iter().find(|(end, _)| path.ends_with(end)).map(|(_, api)| *api)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_a_model_have_an_api() {
        for (method, path, expected) in [
            ("POST", "/v1/messages", Some(Api::Messages)),
            ("POST", "/anthropic/v1/messages/", Some(Api::Messages)),
            ("POST", "/v1/messages/count_tokens", None),
            ("POST", "/v1/messages/batches", None),
            ("GET", "/v1/messages", None),
            ("HEAD", "/", None),
            ("HEAD", "/api/hello", None),
            ("POST", "/api/event_logging/batch", None),
            ("POST", "/v1/files", None),
            ("POST", "/v1/responses", Some(Api::Responses)),
            ("POST", "/backend-api/codex/responses", Some(Api::Responses)),
            ("POST", "/v1/responses/compact", Some(Api::Responses)),
            ("POST", "/v1/responses/resp_1/cancel", None),
            ("GET", "/v1/responses", Some(Api::Responses)),
            ("GET", "/v1/responses/resp_1", None),
            ("DELETE", "/v1/responses", None),
            ("GET", "/v1/models", None),
            ("POST", "/v1/chat/completions", Some(Api::ChatCompletions)),
            ("POST", "/v1/completions", None),
            ("POST", "/v1/embeddings", None),
            ("POST", "/v1beta/models/gemini-2.5-pro:generateContent", Some(Api::Gemini)),
            ("POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent", Some(Api::Gemini)),
            ("POST", "/v1beta/models/gemini-2.5-pro:countTokens", None),
            ("POST", "/v1beta/models/gemini-embedding-001:batchEmbedContents", None),
            ("POST", "", None),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(api_of(&method, path, None), expected, "{method} {path}");
            if !path.is_empty() {
                let hinted = api_of(&method, path, Some(Api::ChatCompletions));
                assert_eq!(hinted, expected, "{method} {path}: a path that shows the call is not overruled");
            }
        }
    }

    #[test]
    fn an_address_that_is_the_whole_endpoint_is_read_as_the_route_says() {
        assert_eq!(api_of(&Method::POST, "/", Some(Api::Messages)), Some(Api::Messages));
        assert_eq!(api_of(&Method::HEAD, "/", Some(Api::Messages)), None);
    }
}
