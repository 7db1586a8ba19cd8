//! The build script: makes of the documents in `conf/` what the program gives out.
//!
//! In: OpenAPI and OpenRPC documents in YAML. Out: each of them as JSON, for tools and tests, and
//! one page of HTML with all of them, for people. `page` lays it out, `operation` and `method` show
//! what can be asked, `shape` shows schemas, `text` knows how HTML is written.

#[path = "src/admin/documents/document.rs"]
mod document;
#[path = "src/admin/documents/json.rs"]
mod json;
#[path = "src/admin/documents/method.rs"]
mod method;
#[path = "src/admin/documents/operation.rs"]
mod operation;
#[path = "src/admin/documents/page.rs"]
mod page;
#[path = "src/admin/documents/shape.rs"]
mod shape;
#[path = "src/admin/documents/text.rs"]
mod text;

use document::Document;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// Folder and name of each document, in the order of the page.
const DOCUMENTS: [(&str, &str); 5] = [
    ("openapi", "gateway"),
    ("openrpc", "gateway"),
    ("openapi", "relay"),
    ("openapi", "sidecar"),
    ("openapi", "admin"),
];
const STYLE: &str = "src/admin/documents/style.css";

fn main() -> Result<(), Box<dyn Error>> {
    let out = env::var("OUT_DIR")?;
    let mut documents = Vec::new();
    for (folder, name) in DOCUMENTS {
        let path = format!("conf/{folder}/{name}.yaml");
        println!("cargo::rerun-if-changed={path}");
        let document = Document::read(folder, name, &fs::read_to_string(&path)?)
            .map_err(|error| format!("{path}: {error}"))?;
        let json = Path::new(&out).join(format!("{folder}-{name}.json"));
        fs::write(json, json::of(&document.root))?;
        documents.push(document);
    }
    println!("cargo::rerun-if-changed={STYLE}");
    let page = page::of(&documents, &fs::read_to_string(STYLE)?);
    fs::write(Path::new(&out).join("docs.html"), page)?;
    Ok(())
}
