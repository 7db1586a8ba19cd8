//! Checks every response that a test sees against the OpenAPI document of its surface.
//!
//! In: the request, as far as the client knows it, and the response. Out: nothing, or a failed test
//! that names what the document does not declare: a status, a header, a media type, a body. If
//! `PORTCULLIS_SEEN` is set to a file, each response of a documented operation is recorded there,
//! so that `tests/lib/seen.py` can report the ones that no test has seen.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{LazyLock, Mutex};

use boon::{Compiler, Draft, SchemaIndex, Schemas};
use portcullis_documents::DOCUMENTS;
use serde_json::Value;

use crate::support::response::{Framing, Response};

/// Headers of HTTP itself, which no document declares.
const TRANSPORT: [&str; 6] = [
    "connection",
    "content-length",
    "content-type",
    "date",
    "keep-alive",
    "transfer-encoding",
];

/// The listen addresses of the surfaces, and the process that owns each.
static LISTENING: Mutex<BTreeMap<SocketAddr, (u32, &'static Document)>> =
    Mutex::new(BTreeMap::new());

/// The request that a response belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SentRequest {
    /// HTTP method and path.
    Operation(String, String),
    /// Unknown: a head in pieces, or more than one.
    #[default]
    Unclear,
}

impl SentRequest {
    /// Parses these bytes: one request line at the start, and no other one after it.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let line = text.split("\r\n").next().unwrap_or_default();
        let words: Vec<_> = line.split(' ').collect();
        match words.as_slice() {
            [method, target, "HTTP/1.1" | "HTTP/1.0"] if text.matches(" HTTP/1.").count() == 1 => {
                Self::Operation((*method).to_owned(), origin_form(target).to_owned())
            }
            _ => Self::Unclear,
        }
    }
}

/// A target without the scheme and the authority of its absolute form.
fn origin_form(target: &str) -> &str {
    let lower = target.to_ascii_lowercase();
    if !lower.starts_with("http://") && !lower.starts_with("https://") {
        return target;
    }
    let authority = target.find("://").map_or(0, |at| at + 3);
    let path = target[authority..].find('/');
    path.map_or("/", |at| &target[authority + at..])
}

/// Registers a surface of this process at this address.
pub(crate) fn listens(surface: &str, address: SocketAddr, process: u32) {
    let document = ALL.iter().find(|document| document.surface == surface);
    let document = document.expect("every surface has a document");
    LISTENING
        .lock()
        .unwrap()
        .insert(address, (process, document));
}

/// Removes the addresses of a process that has ended: its ports may be reused.
pub(crate) fn gone(process: u32) {
    // a poisoned lock means that the test has failed already
    if let Ok(mut listening) = LISTENING.lock() {
        listening.retain(|_, (own, _)| *own != process);
    }
}

/// The document of the surface that listens at this address.
pub(crate) fn at(address: SocketAddr) -> Option<&'static Document> {
    LISTENING
        .lock()
        .unwrap()
        .get(&address)
        .map(|(_, document)| *document)
}

/// A document, compiled for checks.
pub(crate) struct Document {
    surface: &'static str,
    schemas: Schemas,
    operations: BTreeMap<(String, String), Answers>,
    any_request: Answers,
    every_answer: Vec<Header>,
}

type Answers = BTreeMap<u16, Answer>;

/// A response as a document declares it.
struct Answer {
    headers: Vec<Header>,
    content: BTreeMap<String, Option<SchemaIndex>>,
}

struct Header {
    name: String,
    required: bool,
    schema: SchemaIndex,
}

static ALL: LazyLock<[Document; 4]> =
    LazyLock::new(|| ["gateway", "relay", "sidecar", "admin"].map(Document::read));

impl Document {
    fn read(surface: &'static str) -> Self {
        let path = format!("/docs/openapi/{surface}.json");
        let document = DOCUMENTS
            .as_flattened()
            .iter()
            .find(|document| document.path == path);
        let root: Value = serde_json::from_str(document.expect("it is given out").text).unwrap();
        let mut reader = Reader::new(surface, &root);
        let mut operations = BTreeMap::new();
        for (path, methods) in root["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let at = format!("/paths/{}/{method}/responses", escaped(path));
                let answers = reader.answers(&operation["responses"], &at);
                operations.insert((method.to_uppercase(), path.clone()), answers);
            }
        }
        let any_request = reader.answers(
            &root["x-any-request"]["responses"],
            "/x-any-request/responses",
        );
        let every_answer = reader.headers(&root["x-every-answer"], "/x-every-answer");
        let schemas = reader.schemas;
        Self {
            surface,
            schemas,
            operations,
            any_request,
            every_answer,
        }
    }

    /// Fails the test if the document does not declare the response.
    pub(crate) fn judge(&self, sent: &SentRequest, response: &Response) {
        let mut faults = Vec::new();
        let mut fits = |answers: Option<&Answers>| {
            let Some(answer) = answers.and_then(|answers| answers.get(&response.status)) else {
                return false;
            };
            let fault = self.fault(answer, response);
            faults.extend(fault.clone());
            fault.is_none()
        };
        let known = match sent {
            SentRequest::Operation(method, target) => {
                let names = self.operations(method, target, response.status);
                let stated: Vec<_> = names
                    .into_iter()
                    .filter(|name| fits(self.operations.get(*name)))
                    .collect();
                for name in &stated {
                    note(self.surface, name, response.status);
                }
                !stated.is_empty() || fits(Some(&self.any_request))
            }
            SentRequest::Unclear => {
                let mut all = self.operations.values().chain([&self.any_request]);
                all.any(|answers| fits(Some(answers)))
            }
        };
        let document = format!("conf/openapi/{}.yaml", self.surface);
        assert!(
            known,
            "{document} documents no such response to {sent:?}: {faults:?} {response:?}"
        );
    }

    /// The operations that may declare this response. `GET` implies `HEAD`; only the sidecar, the
    /// page's journal and readiness accept a query; each operation of the path declares its 405.
    fn operations(&self, method: &str, target: &str, status: u16) -> Vec<&(String, String)> {
        let method = if method == "HEAD" { "GET" } else { method };
        let path = match target.split_once('?') {
            Some((path, _)) if self.surface == "sidecar" || takes_query(path) => path,
            _ => target,
        };
        let of_path = self
            .operations
            .keys()
            .filter(|(_, template)| is_of(path, template));
        of_path
            .filter(|(own, _)| own == method || status == 405)
            .collect()
    }

    /// The first part of this response that the document does not declare.
    fn fault(&self, answer: &Answer, response: &Response) -> Option<String> {
        let stated = || answer.headers.iter().chain(&self.every_answer);
        for header in stated() {
            // the first one, where the header may be repeated
            let mut sent = response.headers.iter();
            let value = sent.find(|(name, _)| name.eq_ignore_ascii_case(&header.name));
            let value = value.map(|(_, value)| Value::from(value.as_str()));
            let fault = match value {
                None if header.required => Some("is not there".to_owned()),
                None => None,
                Some(value) => self.misfit(header.schema, &value),
            };
            if let Some(fault) = fault {
                return Some(format!("the header {} {fault}", header.name));
            }
        }
        for (name, _) in &response.headers {
            let is_stated = stated().any(|header| header.name.eq_ignore_ascii_case(name));
            if !is_stated && !TRANSPORT.contains(&name.to_ascii_lowercase().as_str()) {
                return Some(format!("the header {name}"));
            }
        }
        let media_type = response.header("Content-Type").unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default();
        if essence.is_empty() && answer.content.is_empty() {
            return None;
        }
        let Some(schema) = answer.content.get(essence) else {
            return Some(format!("the media type {media_type:?}"));
        };
        let schema = schema.filter(|_| response.framing != Framing::Bodiless)?;
        let body = match essence {
            "application/json" | "application/health+json" => {
                // the id of a request may be a number outside the parser's range
                serde_json::from_slice(&response.body).ok()?
            }
            _ => Value::from(response.text()),
        };
        self.misfit(schema, &body)
            .map(|misfit| format!("the body {misfit}"))
    }

    fn misfit(&self, schema: SchemaIndex, value: &Value) -> Option<String> {
        self.schemas
            .validate(value, schema)
            .err()
            .map(|error| format!("does not fit: {error}"))
    }
}

/// Reads the responses of a document, and compiles their schemas.
struct Reader<'a> {
    root: &'a Value,
    url: String,
    compiler: Compiler,
    schemas: Schemas,
}

impl<'a> Reader<'a> {
    fn new(surface: &str, root: &'a Value) -> Self {
        let url = format!("http://documents.test/{surface}.json");
        let mut compiler = Compiler::new();
        compiler.set_default_draft(Draft::V2020_12);
        compiler
            .add_resource(&url, root.clone())
            .expect("it is JSON");
        Self {
            root,
            url,
            compiler,
            schemas: Schemas::new(),
        }
    }

    /// A node and its pointer, with a reference resolved.
    fn follow<'b>(&self, node: &'b Value, at: &str) -> (&'b Value, String)
    where
        'a: 'b,
    {
        match node["$ref"].as_str().and_then(|to| to.strip_prefix('#')) {
            Some(to) => (
                self.root.pointer(to).expect("it leads somewhere"),
                to.to_owned(),
            ),
            None => (node, at.to_owned()),
        }
    }

    fn answers(&mut self, responses: &'a Value, at: &str) -> Answers {
        let mut answers = Answers::new();
        for (status, response) in responses.as_object().into_iter().flatten() {
            let (response, at) = self.follow(response, &format!("{at}/{status}"));
            let headers = self.headers(response, &at);
            let mut content = BTreeMap::new();
            for (media_type, one) in response["content"].as_object().into_iter().flatten() {
                let at = format!("{at}/content/{}/schema", escaped(media_type));
                let schema = one.get("schema").map(|_| self.compile(&at));
                content.insert(media_type.clone(), schema);
            }
            answers.insert(status.parse().unwrap(), Answer { headers, content });
        }
        answers
    }

    fn headers(&mut self, of: &'a Value, at: &str) -> Vec<Header> {
        let mut headers = Vec::new();
        for (name, header) in of["headers"].as_object().into_iter().flatten() {
            let (header, at) = self.follow(header, &format!("{at}/headers/{}", escaped(name)));
            let required = header["required"].as_bool().unwrap_or_default();
            let schema = self.compile(&format!("{at}/schema"));
            headers.push(Header {
                name: name.clone(),
                required,
                schema,
            });
        }
        headers
    }

    fn compile(&mut self, at: &str) -> SchemaIndex {
        let location = format!("{}#{at}", self.url);
        match self.compiler.compile(&location, &mut self.schemas) {
            Ok(schema) => schema,
            Err(error) => panic!("{location}: {error:#}"),
        }
    }
}

/// A name escaped for a JSON pointer; RFC 6901, section 3.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn takes_query(path: &str) -> bool {
    path.starts_with("/journal") || path == "/readyz"
}

/// True if a path matches a template, in which a name in braces matches one segment.
fn is_of(path: &str, template: &str) -> bool {
    let (segments, names) = (path.split('/'), template.split('/'));
    segments.clone().count() == names.clone().count()
        && segments
            .zip(names)
            .all(|(segment, name)| name.starts_with('{') || segment == name)
}

/// Appends one line per response, in a single write: many tests do so concurrently.
fn note(surface: &str, (method, path): &(String, String), status: u16) {
    let Some(file) = std::env::var_os("PORTCULLIS_SEEN") else {
        return;
    };
    let line = format!("{surface} {method} {path} {status}\n");
    let opened = OpenOptions::new().create(true).append(true).open(file);
    opened.unwrap().write_all(line.as_bytes()).unwrap();
}

#[test]
fn undocumented_answers_are_detected() {
    let gateway = &ALL[0];
    let sent = SentRequest::of(b"GET /healthz HTTP/1.1\r\n\r\n");
    let headers = [
        ("X-Content-Type-Options", "nosniff"),
        ("X-Request-Id", "0123456789"),
        ("RateLimit-Policy", "\"minute\";q=180;w=60"),
        ("RateLimit", "\"minute\";r=180;t=0"),
        ("Cache-Control", "no-store"),
        ("Content-Type", "text/plain; charset=utf-8"),
    ];
    let answer = |status, body: &str, headers: &[(&str, &str)]| {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let headers = headers.iter().map(own).collect();
        let (version, body) = ("HTTP/1.1".to_owned(), body.as_bytes().to_vec());
        Response {
            version,
            status,
            headers,
            framing: Framing::Length,
            body,
        }
    };
    let judged =
        |response: Response| std::panic::catch_unwind(|| gateway.judge(&sent, &response)).is_ok();
    assert!(judged(answer(200, "ok\n", &headers)), "what it says");
    assert!(!judged(answer(201, "ok\n", &headers)), "another status");
    assert!(!judged(answer(200, "fine\n", &headers)), "another body");
    assert!(!judged(answer(200, "ok\n", &headers[1..])), "a header less");
    let more = [headers.as_slice(), &[("Server", "x")]].concat();
    assert!(!judged(answer(200, "ok\n", &more)), "a header more");
    let other = headers.map(|(name, value)| match name {
        "Content-Type" => (name, "text/html"),
        _ => (name, value),
    });
    assert!(!judged(answer(200, "ok\n", &other)), "another media type");
}
