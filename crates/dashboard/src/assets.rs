//! The files the pages load: a style sheet, one small script, an icon. All of them are in the binary, and the name of
//! each holds a hash of its content, so that a browser may keep it for ever and never has a stale one.

use std::sync::LazyLock;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use types::hex::hex;

#[derive(Debug)]
pub struct Asset {
    /// As it is asked for: `/static/style.0123456789abcdef.css`.
    pub path: String,
    kind: &'static str,
    content: &'static str,
}

pub static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("style", "css", "text/css; charset=utf-8", include_str!("assets/style.css")));
pub static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("live", "js", "text/javascript; charset=utf-8", include_str!("assets/live.js"))
});
pub static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("assets/icon.svg")));

impl Asset {
    fn new(name: &str, extension: &str, kind: &'static str, content: &'static str) -> Self {
        let digest = Sha256::digest(content.as_bytes());
        let hash = hex(&digest[..8]);
        Self { path: format!("/static/{name}.{hash}.{extension}"), kind, content }
    }
}

/// The icon under the name that browsers ask for by themselves.
pub fn icon() -> Response {
    answer(&ICON, "public, max-age=86400")
}

fn answer(asset: &Asset, kept: &'static str) -> Response {
    ([(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, kept)], asset.content).into_response()
}

/// The file of this path, if it is exactly one of ours.
pub fn serve(path: &str) -> Response {
    let ours: [&Asset; 3] = [&STYLE, &SCRIPT, &ICON];
    match ours.into_iter().find(|asset| asset.path == path) {
        Some(asset) => answer(asset, "public, max-age=31536000, immutable"),
        None => (StatusCode::NOT_FOUND, "no such file\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_under_its_exact_name_alone() {
        assert_eq!(serve(&STYLE.path).status(), StatusCode::OK);
        assert_eq!(serve(&SCRIPT.path).headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        for path in
            ["/static/style.css", "/static/style.0000000000000000.css", "/static/../Cargo.toml", "/static/"]
        {
            assert_eq!(serve(path).status(), StatusCode::NOT_FOUND, "{path}");
        }
    }
}
