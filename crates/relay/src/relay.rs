//! The way of a request: secret, route, gate, upstream, answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Extensions, Method, Response, StatusCode, Version, request};
use hyper::body::{Body, Incoming};
use os::clock::{Clock, SystemClock};

use crate::body::{AnswerBody, RequestBody, Upload};
use crate::conversation::{Turn, while_the_agent_is_there};
use crate::credentials::Credentials;
use crate::credentials::billing_of;
use crate::exchange::Exchange;
use crate::meter::SocketMeter;
use crate::serve::Settings;
use crate::upstream::{ConnectError, Draft, Link, Network, SendError, Upstream};
use crate::websocket::WebSocket;
use crate::{Activity, CallEnd, Gate, Observer, Peer, Refusal, Request, Route, Secret, Transport, Verdict};
use crate::{head, meter, refusal};

pub(crate) struct Relay {
    secret: Secret,
    routes: Vec<Route>,
    /// In the order of `routes`.
    lanes: Vec<PreparedRoute>,
    network: Arc<Network>,
    gate: Arc<dyn Gate>,
    observer: Arc<dyn Observer>,
    activity: Activity,
    body_limit: usize,
    requests: Arc<AtomicU64>,
}

/// What a route becomes when it is used.
struct PreparedRoute {
    upstream: Upstream,
    credentials: Option<Credentials>,
    added: Vec<(HeaderName, HeaderValue)>,
}

impl PreparedRoute {
    fn new(route: &Route, network: &Arc<Network>) -> Result<Self, String> {
        let named = |(name, value): &(String, String)| {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("{name:?} is no name of a header"))?;
            let value = HeaderValue::from_str(value)
                .map_err(|_| format!("the value of header {name} has characters that no header may have"))?;
            Ok::<_, String>((name, value))
        };
        Ok(Self {
            upstream: Upstream::new(&route.upstream.base, network.clone())?,
            credentials: route.auth.as_ref().map(Credentials::new).transpose()?,
            added: route.headers.iter().map(named).collect::<Result<_, _>>()?,
        })
    }

    /// The headers that the settings add to each request.
    async fn added(&self) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        let mut added = self.added.clone();
        if let Some(credentials) = &self.credentials {
            added.push((credentials.header().clone(), Box::pin(credentials.value()).await?));
        }
        Ok(added)
    }
}

type Answer = Result<Response<AnswerBody>, Broken>;

/// Why an agent's connection ends without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The upstream's has broken, or the agent's own.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    #[error("the agent went away in the middle of its request")]
    AgentGone,
}

impl Relay {
    pub fn new(settings: Settings, gate: Arc<dyn Gate>, observer: Arc<dyn Observer>) -> Result<Self, String> {
        let network = Arc::new(Network::new(settings.ca_file, &settings.proxies));
        let lanes = settings
            .routes
            .iter()
            .map(|route| PreparedRoute::new(route, &network))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            secret: settings.secret,
            routes: settings.routes,
            lanes,
            network,
            gate,
            observer,
            activity: settings.activity,
            body_limit: settings.body_limit,
            requests: Arc::default(),
        })
    }

    /// Reads certificates beside the first request, which would wait for them.
    pub fn prepare(self: Arc<Self>) {
        if self.lanes.iter().any(|lane| lane.upstream.is_tls()) {
            tokio::spawn(async move { self.network.prepare().await });
        }
    }

    pub async fn answer(&self, request: http::Request<Incoming>, peer: Peer, turn: Turn) -> Answer {
        self.lead(request, peer, &turn).await.map(|response| response.map(|body| body.end_of(turn)))
    }

    async fn lead(&self, request: http::Request<Incoming>, peer: Peer, turn: &Turn) -> Answer {
        let (mut parts, incoming) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("", |path| path.as_str());
        let found = head::without_secret(target, self.secret.expose())
            .and_then(|rest| head::route_of(&self.routes, rest));
        let Some((index, route, rest)) = found else {
            RequestBody::new(incoming, Upload::new(0)).discard().await;
            // Says nothing of what would have been right.
            return Ok(own(refusal::answer(
                None,
                StatusCode::NOT_FOUND,
                "nothing is served at this address",
            )));
        };
        let lane = &self.lanes[index];
        let exchange = self.exchange(&parts, peer, route, lane, rest);
        turn.sends(exchange.upload());
        let path = head::join(lane.upstream.base_path(), rest);
        let mut extensions = std::mem::take(&mut parts.extensions);
        let mut body = RequestBody::new(incoming, exchange.upload().clone());
        if head::expects_continue(&parts.headers) && !body.is_end_stream() {
            body.wait_for_continue(&mut extensions);
        }
        let path = match path {
            Ok(path) => path,
            Err(error) => {
                let words = format!("the path of this request cannot be passed on: {error}");
                return Ok(decline(exchange, body, StatusCode::BAD_REQUEST, &words).await);
            }
        };
        let upgrade = exchange.transport() == Transport::WebSocket;
        // What authenticates the agent is for its vendor. It never reaches an upstream that has a credential of its own.
        let (path, headers) = match &lane.credentials {
            Some(credentials) => {
                let headers = head::without_agents_credentials(&parts.headers, credentials.header());
                (head::without_key(path), headers)
            }
            None => (path, parts.headers),
        };
        let draft = Draft { method: parts.method, path, headers, added: Vec::new(), upgrade };
        if upgrade {
            return Box::pin(self.websocket(lane, draft, exchange, extensions, body)).await;
        }
        self.http(lane, draft, exchange, peer, extensions, body).await
    }

    fn exchange(
        &self,
        parts: &request::Parts,
        peer: Peer,
        route: &Route,
        lane: &PreparedRoute,
        rest: &str,
    ) -> Exchange {
        let path = rest.split('?').next().unwrap_or_default();
        let upgrade = head::wants_websocket(&parts.headers);
        let is_call = upgrade || parts.method != Method::GET;
        let api = meter::api_of(&parts.method, path, route.api).filter(|_| is_call);
        let billing = api.filter(|_| lane.credentials.is_none());
        let request = Request {
            number: self.next_number(),
            route: route.name.clone(),
            peer,
            at: SystemClock.now(),
            method: parts.method.clone(),
            path: path.to_owned(),
            headers: head::without_credentials(
                &parts.headers,
                lane.credentials.as_ref().map(Credentials::header),
            ),
            api,
            billing: billing.and_then(|api| billing_of(api, &parts.headers, rest)),
            body: None,
        };
        let transport = if upgrade { Transport::WebSocket } else { Transport::Http };
        let open = self.activity.exchange();
        Exchange::new(self.observer.clone(), request, transport, Instant::now(), self.body_limit, open)
    }

    async fn http(
        &self,
        lane: &PreparedRoute,
        mut draft: Draft,
        mut exchange: Exchange,
        peer: Peer,
        extensions: Extensions,
        mut body: RequestBody,
    ) -> Answer {
        if exchange.api().is_some() {
            // A body that the agent sends only when asked is not asked for by us: the gate decides without it.
            if self.gate.is_limiting()
                && body.is_asked_for()
                && let Some(whole) = body.read_ahead(self.body_limit).await?
            {
                exchange.set_body(whole);
            }
            // The gate may have it wait, and hyper does not see an agent go whose request is not read to its end.
            let upload = exchange.upload().clone();
            let asking = self.refusal(exchange.request());
            let Some(refused) = while_the_agent_is_there(peer, &upload, asking).await else {
                return Err(Broken::AgentGone);
            };
            if let Some(refusal) = refused {
                body.discard().await;
                exchange.finish_with(CallEnd::Refused, StatusCode::TOO_MANY_REQUESTS);
                return Ok(own(refusal::refused(exchange.api(), &refusal)));
            }
        }
        draft.added = match lane.added().await {
            Ok(added) => added,
            Err(reason) => {
                let words = without_credentials_words(&reason);
                let mut answer = decline(exchange, body, StatusCode::BAD_GATEWAY, &words).await;
                refusal::not_again(answer.headers_mut());
                return Ok(answer);
            }
        };
        if let Some(request) = exchange.request() {
            self.observer.began(request);
        }
        let upload = exchange.upload().clone();
        let sending = lane.upstream.send(&draft, extensions, body);
        let Some(sent) = while_the_agent_is_there(peer, &upload, sending).await else {
            return Err(Broken::AgentGone);
        };
        match sent {
            Ok((response, link)) => Ok(lane.pass(exchange, response, link)),
            Err(SendError::Broken(error)) if error.is_parse() => {
                let words = unreadable_words(&lane.upstream.origin(), &error);
                exchange.finish_with(CallEnd::UpstreamGone, StatusCode::BAD_GATEWAY);
                Ok(own(refusal::answer(exchange.api(), StatusCode::BAD_GATEWAY, &words)))
            }
            // The agent's connection broke in the middle of its request, which hyper reports as an error of the body's own.
            Err(SendError::Broken(error)) if error.is_user() && !upload.is_done() => Err(Broken::AgentGone),
            Err(SendError::Broken(error)) => {
                exchange.broke();
                Err(error.into())
            }
            Err(SendError::NotConnected(error, body)) => {
                let words = not_connected_words(&error);
                Ok(decline(exchange, body, StatusCode::BAD_GATEWAY, &words).await)
            }
        }
    }

    /// Whatever keeps a WebSocket from being, the agent is answered 426: Codex then uses plain requests a tenth of a second later,
    /// where 404 or 500 cost it 7 s, and a plain request says what is wrong.
    async fn websocket(
        &self,
        lane: &PreparedRoute,
        mut draft: Draft,
        mut exchange: Exchange,
        extensions: Extensions,
        body: RequestBody,
    ) -> Answer {
        if self.gate.is_limiting() && exchange.api().is_some() {
            let words = "a budget is in force: use plain requests";
            return Ok(decline(exchange, body, StatusCode::UPGRADE_REQUIRED, words).await);
        }
        draft.added = match lane.added().await {
            Ok(added) => added,
            Err(reason) => {
                let words = without_credentials_words(&reason);
                return Ok(decline(exchange, body, StatusCode::UPGRADE_REQUIRED, &words).await);
            }
        };
        let mut carrier = http::Request::new(());
        *carrier.extensions_mut() = extensions;
        let agent = hyper::upgrade::on(&mut carrier);
        let extensions = std::mem::take(carrier.extensions_mut());
        let (mut response, link) = match lane.upstream.send(&draft, extensions, body).await {
            Ok(answered) => answered,
            Err(SendError::NotConnected(error, body)) => {
                let words = not_connected_words(&error);
                return Ok(decline(exchange, body, StatusCode::UPGRADE_REQUIRED, &words).await);
            }
            Err(SendError::Broken(error)) => {
                tracing::debug!(%error, "the API broke off the handshake of a WebSocket");
                exchange.finish_with(CallEnd::UpstreamGone, StatusCode::UPGRADE_REQUIRED);
                let words = "the API broke off the handshake: use plain requests";
                return Ok(own(refusal::answer(exchange.api(), StatusCode::UPGRADE_REQUIRED, words)));
            }
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(lane.pass(exchange, response, link));
        }
        let upstream = hyper::upgrade::on(&mut response);
        link.detach();
        exchange.answered(response.status(), response.headers().clone());
        let meter = exchange.api().map(|api| SocketMeter::new(api, response.headers()));
        if let Some(handshake) = exchange.upgraded() {
            let socket = WebSocket::new(
                self.gate.clone(),
                self.observer.clone(),
                self.requests.clone(),
                handshake,
                meter,
            );
            tokio::spawn(socket.tunnel(agent, upstream));
        }
        let (mut parts, _) = response.into_parts();
        parts.headers = head::response_headers(&parts.headers, true);
        parts.version = Version::HTTP_11;
        Ok(Response::from_parts(parts, AnswerBody::own(None)))
    }

    async fn refusal(&self, request: Option<&Request>) -> Option<Refusal> {
        match self.gate.admit(request?).await {
            Verdict::Go => None,
            Verdict::Refuse(refusal) => Some(refusal),
        }
    }

    fn next_number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }
}

impl PreparedRoute {
    /// The upstream's answer, towards the agent.
    fn pass(&self, mut exchange: Exchange, response: Response<Incoming>, link: Link) -> Response<AnswerBody> {
        let (mut parts, body) = response.into_parts();
        if let (StatusCode::UNAUTHORIZED, Some(credentials)) = (parts.status, &self.credentials) {
            credentials.refused();
        }
        let passed = head::response_headers(&parts.headers, false);
        exchange.answered(parts.status, std::mem::replace(&mut parts.headers, passed));
        parts.version = Version::HTTP_11;
        Response::from_parts(parts, AnswerBody::passed(body, exchange, link))
    }
}

/// The proxy's own answer to a request that was not sent.
async fn decline(
    mut exchange: Exchange,
    body: RequestBody,
    status: StatusCode,
    words: &str,
) -> Response<AnswerBody> {
    body.discard().await;
    exchange.finish_with(CallEnd::NotConnected, status);
    own(refusal::answer(exchange.api(), status, words))
}

fn own(response: Response<Bytes>) -> Response<AnswerBody> {
    response.map(|bytes| AnswerBody::own(Some(bytes)))
}

fn not_connected_words(error: &ConnectError) -> String {
    let what = if error.0.contains("certificate") {
        "Name your own authorities with tls.caFile"
    } else {
        "Check the network and proxy.AGENT.upstream"
    };
    format!("codemie's proxy {error}. Nothing was sent. {what}, or start without --proxy.")
}

fn unreadable_words(origin: &str, error: &hyper::Error) -> String {
    format!("codemie's proxy cannot read what {origin} answered: {error}. Start without --proxy.")
}

fn without_credentials_words(reason: &str) -> String {
    format!("codemie: no credential for the gateway: {reason}; nothing was sent")
}
