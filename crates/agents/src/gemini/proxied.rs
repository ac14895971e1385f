//! Gemini CLI behind the proxy: where its calls go, and what they say of themselves.

use super::{Gemini, calls, route};
use crate::{CallIdentity, Proxied, ProxyRoute, ProxyStart, VendorApi};

impl Proxied for Gemini {
    fn proxy_route(&self, start: &ProxyStart<'_>) -> ProxyRoute {
        route::route(start)
    }

    fn vendor_api(&self) -> Option<VendorApi> {
        Some(VendorApi { name: "gemini", upstream: route::API, variable: "GOOGLE_GEMINI_BASE_URL" })
    }

    /// Its file has ids of its own.
    fn keys_by_answer(&self, _version: Option<&str>) -> bool {
        false
    }

    fn identify(&self, request: &relay::Request) -> CallIdentity {
        calls::identify(request)
    }
}
