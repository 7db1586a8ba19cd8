//! The documents of the program's interfaces, and the page that shows them.
//!
//! They are written in `conf/openapi` and `conf/openrpc`. The build script (`docs/build.rs`, with
//! the files beside it) makes JSON and one page of HTML of them; here they are given out, to
//! whoever reaches the admin listener. The tests hold them against what the program answers.

use crate::reply::Reply;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use sha2::{Digest as _, Sha256};

/// A document as it is given out.
#[derive(Clone, Copy, Debug)]
pub struct Document {
    /// The path that it is at.
    pub path: &'static str,
    /// Its `Content-Type`.
    pub media_type: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// <https://www.rfc-editor.org/rfc/rfc9512>
const YAML: &str = "application/yaml";
const JSON: &str = "application/json";

macro_rules! documents {
    ($($folder:literal $name:literal;)*) => {
        [$(
            Document {
                path: concat!("/docs/", $folder, "/", $name, ".yaml"),
                media_type: YAML,
                text: include_str!(concat!("../../../conf/", $folder, "/", $name, ".yaml")),
            },
            Document {
                path: concat!("/docs/", $folder, "/", $name, ".json"),
                media_type: JSON,
                text: include_str!(concat!(env!("OUT_DIR"), "/", $folder, "-", $name, ".json")),
            },
        )*]
    };
}

/// Every document: as it is written, and as JSON.
pub const DOCUMENTS: [Document; 10] = documents! {
    "openapi" "gateway";
    "openapi" "relay";
    "openapi" "sidecar";
    "openapi" "admin";
    "openrpc" "gateway";
};

/// Where clients look for an OpenRPC document.
const OPENRPC: &str = "/docs/openrpc.json";

/// All of them on one page.
const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/docs.html"));
const STYLE: &str = include_str!("style.css");

/// What is at a path of the documentation; `None` when it is none of its paths.
pub fn reply(target: &[u8]) -> Option<Reply> {
    match target {
        b"/docs" => Some(page()),
        target => {
            let target =
                if target == OPENRPC.as_bytes() { b"/docs/openrpc/gateway.json" } else { target };
            let found = DOCUMENTS.iter().find(|document| document.path.as_bytes() == target)?;
            Some(text(found.media_type, found.text))
        }
    }
}

/// The page. It brings all that it needs, and may load nothing: <https://www.w3.org/TR/CSP3/>.
fn page() -> Reply {
    let mut reply = text("text/html; charset=utf-8", PAGE);
    let style = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    reply.field("content-security-policy", policy);
    reply
}

fn text(media_type: &'static str, text: &'static str) -> Reply {
    Reply::new(200, media_type, text)
}

#[cfg(test)]
mod tests;
