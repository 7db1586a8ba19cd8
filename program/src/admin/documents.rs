//! The documents of the interfaces as responses, and the page with the addresses of the surfaces.

use bytes::Bytes;
use portcullis_base::telemetry::Surface;
use portcullis_documents::{DOCUMENTS, OPERATOR_PAGE, RUNBOOK, STYLE};
use portcullis_edge::reply::Reply;

/// The path where clients expect an OpenRPC document.
const OPENRPC: &str = "/docs/openrpc.json";

/// The documents of a running process.
pub struct Documents {
    page: Bytes,
}

impl Documents {
    /// Renders the page. `listens` returns where a surface listens; `None` if it is off.
    pub fn new(listens: impl Fn(Surface) -> Option<String>) -> Self {
        let mut page = OPERATOR_PAGE.to_owned();
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
        .as_flattened()
        .iter()
        .find(|document| document.path.as_bytes() == target)?;
    Some(Reply::new(200, found.media_type, found.text))
}
