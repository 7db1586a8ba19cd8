//! The documents of the interfaces, and the page that shows them.
//!
//! They are written in `conf/openapi` and `conf/openrpc`; the build script converts them to JSON,
//! and renders the page from `page.html` and `document.html`. The tests compare the documents with
//! the responses of the program.

use crate::reply::Reply;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use sha2::{Digest as _, Sha256};

/// A document as it is served.
#[derive(Clone, Copy, Debug)]
pub struct Document {
    /// Its path.
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

/// Every document, as YAML and as JSON, in the order of the page.
pub const DOCUMENTS: [Document; 10] = documents! {
    "openapi" "gateway";
    "openrpc" "gateway";
    "openapi" "relay";
    "openapi" "sidecar";
    "openapi" "admin";
};

/// Where clients expect an OpenRPC document.
const OPENRPC: &str = "/docs/openrpc.json";

/// All of them on one page.
const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/documents.html"));
const STYLE: &str = include_str!("style.css");

/// The response for a path of the documentation; `None` for any other path.
pub fn reply(target: &[u8]) -> Option<Reply> {
    match target {
        b"/docs" => Some(page()),
        target => {
            let target =
                if target == OPENRPC.as_bytes() { b"/docs/openrpc/gateway.json" } else { target };
            let found = DOCUMENTS.iter().find(|document| document.path.as_bytes() == target)?;
            Some(Reply::new(200, found.media_type, found.text))
        }
    }
}

/// The page, which contains its style and may load nothing: <https://www.w3.org/TR/CSP3/>.
fn page() -> Reply {
    let mut reply = Reply::new(200, "text/html; charset=utf-8", PAGE);
    let style = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    reply.field("content-security-policy", policy);
    reply
}
