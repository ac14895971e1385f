//! Codex behind the proxy: where its calls go, and what they say of themselves.

use super::{Codex, calls, route};
use crate::{CallIdentity, Proxied, ProxyRoute, ProxyStart, VendorApi};

impl Proxied for Codex {
    fn proxy_route(&self, start: &ProxyStart<'_>) -> ProxyRoute {
        route::route(start)
    }

    fn vendor_api(&self) -> Option<VendorApi> {
        Some(VendorApi { name: "openai", upstream: route::API, variable: "OPENAI_BASE_URL" })
    }

    fn identify(&self, request: &relay::Request) -> CallIdentity {
        calls::identify(request)
    }
}
