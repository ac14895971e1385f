//! Claude Code behind the proxy: where its calls go, and what they say of themselves.

use super::{Claude, calls, route};
use crate::{CallIdentity, Proxied, ProxyRoute, ProxyStart, VendorApi};

impl Proxied for Claude {
    fn proxy_route(&self, start: &ProxyStart<'_>) -> ProxyRoute {
        route::route(start)
    }

    fn vendor_api(&self) -> Option<VendorApi> {
        Some(VendorApi { name: "anthropic", upstream: route::FIRST_PARTY, variable: "ANTHROPIC_BASE_URL" })
    }

    fn identify(&self, request: &relay::Request) -> CallIdentity {
        calls::identify(request)
    }
}
