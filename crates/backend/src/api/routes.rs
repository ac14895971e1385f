//! The table of routes.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};

use super::answer::Refusal;
use super::auth::Need;
use super::openapi::Operation;
use super::{Backend, ingest, live, openapi, read};
use reader::token::{Role, Token};
use server::Peer;

/// One route: its path, the token it needs, its description, its handler.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) method: &'static str,
    pub(super) need: Need,
    pub(super) operation: fn() -> Operation,
    handler: fn() -> MethodRouter<Arc<Backend>>,
}

pub(super) static ROUTES: [Route; 9] = [
    Route {
        path: "/v1/events",
        method: "post",
        need: Need::Role(Role::Ingest),
        operation: openapi::post_events,
        handler: || post(ingest::events),
    },
    Route {
        path: "/v1/sessions",
        method: "get",
        need: Need::Role(Role::Read),
        operation: openapi::get_sessions,
        handler: || get(read::sessions),
    },
    Route {
        path: "/v1/sessions/{id}",
        method: "get",
        need: Need::Role(Role::Read),
        operation: openapi::get_session,
        handler: || get(read::session),
    },
    Route {
        path: "/v1/sessions/{id}/events",
        method: "get",
        need: Need::Role(Role::Read),
        operation: openapi::get_timeline,
        handler: || get(read::timeline),
    },
    Route {
        path: "/v1/usage",
        method: "get",
        need: Need::Role(Role::Read),
        operation: openapi::get_usage,
        handler: || get(read::usage),
    },
    Route {
        path: "/v1/live",
        method: "get",
        need: Need::Role(Role::Read),
        operation: openapi::get_live,
        handler: || get(live::live),
    },
    Route {
        path: "/metrics",
        method: "get",
        need: Need::Role(Role::Read),
        operation: openapi::get_metrics,
        handler: || get(read::metrics),
    },
    Route {
        path: "/openapi.json",
        method: "get",
        need: Need::Any,
        operation: openapi::get_openapi,
        handler: || get(|| async { Json(openapi::document()) }),
    },
    Route {
        path: "/healthz",
        method: "get",
        need: Need::Nothing,
        operation: openapi::get_healthz,
        handler: || get(read::healthz),
    },
];

pub(super) fn router(backend: Arc<Backend>) -> Router {
    let mut router = Router::new();
    for route in &ROUTES {
        let guard = middleware::from_fn_with_state((backend.clone(), route), guard);
        let handler = (route.handler)();
        router = router.route(route.path, handler.route_layer(guard));
    }
    router.layer(middleware::map_response(unguessed)).with_state(backend)
}

/// Answers are what they say they are. The refusals of methods and of tokens, too.
async fn unguessed(mut response: Response) -> Response {
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The name of the token that a request has shown.
#[derive(Clone, Debug)]
pub(super) struct TokenName(pub(super) String);

/// Before every handler: who asks, how often. After it: how it went.
async fn guard(
    State((backend, route)): State<(Arc<Backend>, &'static Route)>,
    mut request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let (token, response) = match admit(&backend, route, request.headers()).await {
        Ok(None) => (None, next.run(request).await),
        Ok(Some(Token { name, owner, .. })) => {
            if let Some(peer) = request.extensions().get::<Peer>() {
                peer.mark_authenticated();
            }
            // The events of this request belong to this owner.
            request.extensions_mut().insert(owner);
            request.extensions_mut().insert(TokenName(name.clone()));
            (Some(name), next.run(request).await)
        }
        Err(refusal) => (None, refusal.into_response()),
    };
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    backend.metrics.request(route.path, status, took);
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(route = route.path, status, ms, token, "request");
    response
}

/// The token, if the route asks for one and it is good.
async fn admit(backend: &Backend, route: &Route, headers: &HeaderMap) -> Result<Option<Token>, Refusal> {
    if route.need == Need::Nothing {
        return Ok(None);
    }
    let token = backend.tokens.of(headers).await?;
    if !route.need.met_by(token.role) {
        return Err(Refusal::Forbidden);
    }
    backend.rates.take(&token.name, Instant::now()).map_err(Refusal::TooOften)?;
    Ok(Some(token))
}
