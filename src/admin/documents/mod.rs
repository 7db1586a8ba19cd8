//! The documents of the interfaces, and the page that shows them.
//!
//! They are written in `conf/openapi` and `conf/openrpc`; the build script converts them to JSON,
//! and renders the page from `page.html` and `document.html`. The tests compare the documents with
//! the responses of the program.

use crate::reply::Reply;
use crate::telemetry::Surface;
use bytes::Bytes;

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

/// The path where clients expect an OpenRPC document.
const OPENRPC: &str = "/docs/openrpc.json";

/// All documents on one page, with a placeholder for the address of each surface.
const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/documents.html"));
/// The runbook as a page, which is reachable even if other sites are not.
const RUNBOOK: &str = include_str!(concat!(env!("OUT_DIR"), "/runbook.html"));
const STYLE: &str = concat!(include_str!("../palette.css"), include_str!("style.css"));

/// The documents of a running process.
pub struct Documents {
    page: Bytes,
}

impl Documents {
    /// Renders the page. `listens` returns where a surface listens; `None` if it is off.
    pub fn new(listens: impl Fn(Surface) -> Option<String>) -> Self {
        let mut page = PAGE.to_owned();
        for surface in Surface::ALL {
            let text = match listens(surface) {
                Some(place) => format!("Listens on <code>{}</code>.", escaped(&place)),
                None => "Not configured in this process.".to_owned(),
            };
            page = page.replace(&format!("[[listens {}]]", surface.name()), &text);
        }
        Self { page: page.into() }
    }

    /// The response for a path of the documentation; `None` for any other path.
    pub fn reply(&self, target: &[u8]) -> Option<Reply> {
        match target {
            b"/docs" => Some(Reply::page(self.page.clone(), STYLE)),
            b"/runbook" => Some(Reply::page(Bytes::from_static(RUNBOOK.as_bytes()), STYLE)),
            _ => document(target),
        }
    }
}

/// Escapes a text for HTML: a socket's path may contain anything.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn document(target: &[u8]) -> Option<Reply> {
    let target = if target == OPENRPC.as_bytes() {
        b"/docs/openrpc/gateway.json"
    } else {
        target
    };
    let found = DOCUMENTS
        .iter()
        .find(|document| document.path.as_bytes() == target)?;
    Some(Reply::new(200, found.media_type, found.text))
}
