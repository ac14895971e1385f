//! One API: its address, its connections, and the sending of a request, once.

mod connect;
mod driver;
mod pool;

use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use http::uri::{Authority, PathAndQuery, Uri};
use http::{Extensions, Method, Request, Response, Version};
use hyper::body::Incoming;

use crate::body::RequestBody;
use crate::head::{self, Hop};

pub(crate) use connect::{BUFFER_LIMIT, ConnectError, Network, origin};
pub(crate) use pool::Link;
use pool::{Pool, Sender};

/// A request that can be sent on a connection of either version.
#[derive(Debug)]
pub(crate) struct Draft {
    pub method: Method,
    /// The upstream's own path and the request's.
    pub path: PathAndQuery,
    pub headers: HeaderMap,
    pub added: Vec<(HeaderName, HeaderValue)>,
    pub upgrade: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// Nothing was sent, nothing of the body was read.
    NotConnected(ConnectError, RequestBody),
    /// The connection broke before an answer; the request may have arrived.
    Broken(hyper::Error),
}

#[derive(Debug)]
pub(crate) struct Upstream {
    base: Uri,
    authority: Authority,
    host: HeaderValue,
    /// A proxy of the user's is asked for whole addresses.
    is_forwarded: bool,
    forward_credentials: Option<HeaderValue>,
    network: Arc<Network>,
    pool: Arc<Pool>,
}

impl Upstream {
    /// The error says what is wrong with the address.
    pub fn new(base: &Uri, network: Arc<Network>) -> Result<Self, String> {
        let host =
            base.host().filter(|host| !host.is_empty()).ok_or_else(|| format!("{base} names no host"))?;
        if !matches!(base.scheme_str(), Some("http" | "https")) {
            return Err(format!("{} begins with neither https:// nor http://", origin(base)));
        }
        // Without a user and a password, which are for nobody but the user's own tools.
        let port = base.port().map(|port| format!(":{port}")).unwrap_or_default();
        let authority = Authority::try_from(format!("{host}{port}"))
            .map_err(|error| format!("{}: {error}", origin(base)))?;
        let host = HeaderValue::from_str(authority.as_str()).map_err(|error| error.to_string())?;
        let (is_forwarded, forward_credentials) = network.forwards(base);
        Ok(Self {
            base: base.clone(),
            authority,
            host,
            is_forwarded,
            forward_credentials,
            network,
            pool: Arc::default(),
        })
    }

    /// Without path and user, for messages.
    pub fn origin(&self) -> String {
        origin(&self.base)
    }

    pub fn base_path(&self) -> &str {
        self.base.path()
    }

    pub fn is_tls(&self) -> bool {
        self.base.scheme_str() == Some("https")
    }

    /// Sends it once. Where a connection from the pool turns out to be closed, and hyper hands the request back because it had not
    /// begun to write it, the next connection is tried.
    pub async fn send(
        &self,
        draft: &Draft,
        mut extensions: Extensions,
        mut body: RequestBody,
    ) -> Result<(Response<Incoming>, Link), SendError> {
        loop {
            let pooled = if draft.upgrade { None } else { self.pool.take() };
            let is_new = pooled.is_none();
            let sender = match pooled {
                Some(sender) => sender,
                // Boxed: it needs 13 kB, which would be moved about with every request, on the few that open a connection, too.
                None => match Box::pin(self.connect(draft.upgrade)).await {
                    Ok(sender) => sender,
                    Err(error) => return Err(SendError::NotConnected(error, body)),
                },
            };
            let hop = sender.hop();
            if hop == Hop::Two {
                body.send_at_once();
            }
            let uri = match self.uri(draft, hop) {
                Ok(uri) => uri,
                Err(error) => return Err(SendError::NotConnected(error, body)),
            };
            let request = self.request(draft, hop, uri, extensions, body);
            let mut link = Link::new(sender, self.pool.clone());
            match link.send(request).await {
                Ok(response) => return Ok((response, link)),
                Err(mut error) => match error.take_message() {
                    Some(request) if !is_new => {
                        let (parts, unsent) = request.into_parts();
                        extensions = parts.extensions;
                        body = unsent;
                    }
                    _ => return Err(SendError::Broken(error.into_error())),
                },
            }
        }
    }

    async fn connect(&self, only_http1: bool) -> Result<Sender, ConnectError> {
        let sender = self.network.connect(&self.base, only_http1).await?;
        self.pool.share(&sender);
        Ok(sender)
    }

    fn uri(&self, draft: &Draft, hop: Hop) -> Result<Uri, ConnectError> {
        if hop == Hop::One && !self.is_forwarded {
            return Ok(Uri::from(draft.path.clone()));
        }
        Uri::builder()
            .scheme(self.base.scheme_str().unwrap_or("https"))
            .authority(self.authority.clone())
            .path_and_query(draft.path.clone())
            .build()
            .map_err(|error| ConnectError(format!("no address can be made of the path: {error}")))
    }

    /// hyper keeps in `extensions` how the names of headers were written.
    fn request(
        &self,
        draft: &Draft,
        hop: Hop,
        uri: Uri,
        extensions: Extensions,
        body: RequestBody,
    ) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = draft.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = if hop == Hop::Two { Version::HTTP_2 } else { Version::HTTP_11 };
        *request.headers_mut() =
            head::request_headers(&draft.headers, &self.host, hop, draft.upgrade, &draft.added);
        if let Some(credentials) = &self.forward_credentials {
            request.headers_mut().insert(PROXY_AUTHORIZATION, credentials.clone());
        }
        *request.extensions_mut() = extensions;
        request
    }
}
