//! The gateway's documents for developers of its clients (`gateway.docs`).
//!
//! The build script makes the page from the documents in `conf/`, as it makes the operator's page
//! from those of all surfaces. Each document is compressed once.

use crate::io::gzip::GzipForm;
use crate::reply::Reply;
use crate::reply::coding::Coding;
use bytes::Bytes;
use portcullis_filters::policy::PublicDocument;
use std::sync::LazyLock;

const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/gateway.html"));
const STYLE: &str = concat!(
    include_str!("../admin/palette.css"),
    include_str!("../admin/documents/style.css")
);

/// The compressed form of each document.
static GZIP: LazyLock<[GzipForm; PublicDocument::ALL.len()]> =
    LazyLock::new(|| PublicDocument::ALL.map(|document| GzipForm::of(text(document).len())));

/// The response with a document, plain or in gzip as the client accepts.
pub(super) fn reply(document: PublicDocument) -> Reply {
    let text = text(document);
    let plain = match document {
        PublicDocument::Page => Reply::page(Bytes::from_static(text.as_bytes()), STYLE),
        PublicDocument::OpenApiYaml | PublicDocument::OpenRpcYaml => {
            // https://www.rfc-editor.org/rfc/rfc9512
            Reply::new(200, "application/yaml", text)
        }
        PublicDocument::OpenApiJson | PublicDocument::OpenRpcJson => {
            Reply::new(200, "application/json", text)
        }
    };
    let gzip = GZIP[document as usize].clone();
    Reply {
        coding: Coding::Negotiable,
        gzip,
        ..plain
    }
}

fn text(document: PublicDocument) -> &'static str {
    match document {
        PublicDocument::Page => PAGE,
        PublicDocument::OpenApiYaml => include_str!("../../conf/openapi/gateway.yaml"),
        PublicDocument::OpenApiJson => {
            include_str!(concat!(env!("OUT_DIR"), "/openapi-gateway.json"))
        }
        PublicDocument::OpenRpcYaml => include_str!("../../conf/openrpc/gateway.yaml"),
        PublicDocument::OpenRpcJson => {
            include_str!(concat!(env!("OUT_DIR"), "/openrpc-gateway.json"))
        }
    }
}
