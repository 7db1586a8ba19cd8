//! The operator's page: one document and a few files, all embedded in the binary.
//!
//! It loads nothing from other servers, and inserts data as text only; the content security policy
//! of every response makes the browser enforce both.

use portcullis_edge::reply::Reply;

/// The page may load its own files and send requests to its own server, nothing else. Text never
/// becomes markup or a script: <https://www.w3.org/TR/CSP3/>,
/// <https://www.w3.org/TR/trusted-types/>.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const CSP: &str = "content-security-policy";
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Path, media type and text of a file.
type File = (&'static str, &'static str, &'static str);

const FILES: [File; 14] = [
    ("/", HTML, include_str!("index.html")),
    ("/palette.css", CSS, portcullis_documents::PALETTE),
    ("/page.css", CSS, include_str!("page.css")),
    ("/icon.svg", SVG, include_str!("icon.svg")),
    ("/icon-degraded.svg", SVG, include_str!("icon-degraded.svg")),
    ("/icon-failing.svg", SVG, include_str!("icon-failing.svg")),
    ("/page.js", JS, include_str!("page.js")),
    ("/dom.js", JS, include_str!("dom.js")),
    ("/plot.js", JS, include_str!("plot.js")),
    ("/past.js", JS, include_str!("past.js")),
    ("/rates.js", JS, include_str!("rates.js")),
    ("/cards.js", JS, include_str!("cards.js")),
    ("/panels.js", JS, include_str!("panels.js")),
    ("/journal.js", JS, include_str!("journal.js")),
];

/// The file at this path.
pub(super) fn file(path: &[u8]) -> Option<Reply> {
    let (_, media_type, text) = FILES.iter().find(|(own, ..)| own.as_bytes() == path)?;
    Some(Reply::new(200, media_type, *text))
}

/// Adds the fields that keep other sites from using the response.
pub(super) fn guarded(mut reply: Reply) -> Reply {
    // the page of the documents has a stricter policy
    if reply.fields.iter().all(|(name, _)| *name != CSP) {
        reply.field(CSP, POLICY);
    }
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        reply.field(name, value);
    }
    reply
}
