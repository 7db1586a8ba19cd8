//! The gateway's documents for developers of its clients (`gateway.docs`).
//!
//! The build script makes the page from the documents in `conf/`, as it makes the operator's page
//! from those of all surfaces. Each document is compressed once.

use crate::reply::Reply;
use crate::reply::coding::Coding;
use bytes::Bytes;
use portcullis_base::io::gzip::GzipForm;
use portcullis_documents::{GATEWAY, METHODS, PUBLIC_PAGE, STYLE};
use portcullis_filters::policy::PublicDocument;
use std::sync::LazyLock;

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
    let [yaml, json] = GATEWAY;
    let [methods_yaml, methods_json] = METHODS;
    match document {
        PublicDocument::Page => PUBLIC_PAGE,
        PublicDocument::OpenApiYaml => yaml.text,
        PublicDocument::OpenApiJson => json.text,
        PublicDocument::OpenRpcYaml => methods_yaml.text,
        PublicDocument::OpenRpcJson => methods_json.text,
    }
}
