//! The documents of the interfaces, and the page that shows them.
//!
//! They are written in `conf/openapi` and `conf/openrpc`; the build script converts them to JSON,
//! and the page is rendered from that on the first request. The tests compare the documents with
//! the responses of the program.

mod method;
mod node;
mod operation;
mod page;
mod shape;
mod spec;
mod text;

use crate::reply::Reply;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use sha2::{Digest as _, Sha256};
use spec::Spec;
use std::sync::LazyLock;

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
static PAGE: LazyLock<String> = LazyLock::new(|| page::of(&specs(), STYLE));
const STYLE: &str = include_str!("style.css");

/// The response for a path of the documentation; `None` for any other path.
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

/// The page, which contains its style and may load nothing: <https://www.w3.org/TR/CSP3/>.
fn page() -> Reply {
    let mut reply = text("text/html; charset=utf-8", &PAGE);
    let style = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    reply.field("content-security-policy", policy);
    reply
}

fn specs() -> Vec<Spec> {
    let json = DOCUMENTS.iter().filter(|document| document.media_type == JSON);
    let specs = json.map(|document| {
        let name = document.path.trim_start_matches("/docs/").trim_end_matches(".json");
        let (folder, name) = name.split_once('/').expect("a folder and a name");
        let root = serde_json::from_str(document.text).expect("the build script writes JSON");
        Spec { folder, name, root }
    });
    specs.collect()
}

fn text(media_type: &'static str, text: &'static str) -> Reply {
    Reply::new(200, media_type, text)
}

#[cfg(test)]
mod tests;
