//! The documents of the interfaces, and the pages that show them and the runbook.
//!
//! They are written in `conf/openapi`, `conf/openrpc` and `conf/prometheus`. The build script
//! converts the first two to JSON, and renders the pages from `templates`. The tests compare the
//! documents with the responses of the program.

#![no_std]

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

/// A document in YAML and in JSON.
macro_rules! forms {
    ($folder:literal, $name:literal) => {
        [
            Document {
                path: concat!("/docs/", $folder, "/", $name, ".yaml"),
                media_type: YAML,
                text: include_str!(concat!("../../conf/", $folder, "/", $name, ".yaml")),
            },
            Document {
                path: concat!("/docs/", $folder, "/", $name, ".json"),
                media_type: JSON,
                text: include_str!(concat!(env!("OUT_DIR"), "/", $folder, "-", $name, ".json")),
            },
        ]
    };
}

/// The gateway's HTTP interface.
pub const GATEWAY: [Document; 2] = forms!("openapi", "gateway");
/// The gateway's methods.
pub const METHODS: [Document; 2] = forms!("openrpc", "gateway");

/// Every document, as YAML and as JSON, in the order of the page.
pub const DOCUMENTS: [[Document; 2]; 5] = [
    GATEWAY,
    METHODS,
    forms!("openapi", "relay"),
    forms!("openapi", "sidecar"),
    forms!("openapi", "admin"),
];

/// The operator's page: all documents, with a placeholder `[[listens NAME]]` for the address of
/// each surface.
pub const OPERATOR_PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/documents.html"));
/// The public page: the gateway's documents.
pub const PUBLIC_PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/gateway.html"));
/// The runbook as a page, which is reachable even if other sites are not.
pub const RUNBOOK: &str = include_str!(concat!(env!("OUT_DIR"), "/runbook.html"));
/// The colours of all pages.
pub const PALETTE: &str = include_str!("../templates/palette.css");
/// The style that these pages contain, for the policy that permits no other.
pub const STYLE: &str = concat!(
    include_str!("../templates/palette.css"),
    include_str!("../templates/style.css")
);
