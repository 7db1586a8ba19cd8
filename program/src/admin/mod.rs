//! The operator's listener: the page, metrics, probes and documents. Nothing can be changed here.
//!
//! `GET /` is a page with the live state of the process, `/docs` one with the documents of all
//! surfaces, `/metrics` has Prometheus' text format. `/livez` succeeds while the process runs,
//! `/readyz` while it accepts requests: 503 as soon as a stop begins; `/readyz?verbose` says what
//! is wrong. The listener is on loopback or a Unix socket, or requires a token. `access` decides
//! who may see it; `page` has the files, `events` streams the state of `snapshot` to them,
//! `history` is that of the plots; `journal` searches the writes; `samples` are the metrics that
//! other parts hold.

mod access;
pub mod documents;
mod events;
mod history;
mod journal;
mod page;
mod samples;
mod seen;
mod snapshot;

pub use access::Access;
pub use history::{History, Sampler};
pub use seen::Seen;

use access::Denied;
use async_trait::async_trait;
use documents::Documents;
use events::Events;
use http::{Method, Version};
use journal::JournalQuery;
use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use portcullis_base::config::{AppliedConfig, Effect, Listen};
use portcullis_base::io::MemoryPool;
use portcullis_base::io::clock;
use portcullis_base::telemetry::{
    self, ActiveCondition, Condition, Finding, Registry, Surface, Verdict,
};
use portcullis_edge::http::context::ServerContext;
use portcullis_edge::http::{Handoff, Request, TextErrors, X_REQUEST_ID};
use portcullis_edge::node::NodeStatus;
use portcullis_edge::proxy::Surfaces;
use portcullis_edge::reply::{Reply, ResponseContext};
use portcullis_filters::head::framing;
use portcullis_store::Journal;
use serde_json::{Value, json};
use snapshot::millis;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;

/// Timeout for a client to read a response, or a piece of a stream.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The listener of a surface.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The surface.
    pub surface: Surface,
    /// Its address, with the actual port.
    pub listen: Listen,
    /// How many connections may be open.
    pub max_connections: usize,
}

/// The parts that the admin listener shows.
pub struct Admin {
    /// Metrics, log and drain.
    pub process: ServerContext,
    /// When the process started.
    pub started: SystemTime,
    /// The surfaces.
    pub surfaces: Surfaces,
    /// The listeners of the surfaces.
    pub listeners: Vec<Listener>,
    /// The node, over the connections of the gateway.
    pub node: NodeStatus,
    /// The memory for node responses.
    pub memory: Arc<MemoryPool>,
    /// The journal of the relay, and the runtime that reads it.
    pub journal: Option<(Journal, Handle)>,
    /// The configuration.
    pub in_force: Arc<AppliedConfig>,
    /// Who may see the page.
    pub access: Arc<Access>,
    /// The history of the plots.
    pub history: History,
    /// The newest block and the last proof.
    pub seen: Seen,
    /// Whether the process is not ready while no URL of the node answers.
    pub ready_needs_node: bool,
    /// Whether limits are shared with other instances.
    pub is_in_fleet: bool,
}

/// The error responder of the admin listener.
pub fn errors(process: ServerContext) -> TextErrors {
    TextErrors {
        process,
        surface: Surface::Admin,
        guard: page::guarded,
    }
}

/// The admin listener's app.
pub struct Operator {
    samples: Registry,
    admin: Arc<Admin>,
    events: Arc<Events>,
    documents: Documents,
}

/// How to answer a request.
enum Response {
    /// Answers with a complete reply.
    Reply(Reply),
    /// Streams snapshots as they are taken, until the client leaves.
    Events,
    /// Answers with the result of a query of the journal.
    Journal(JournalQuery),
}

impl Admin {
    /// The present state as JSON; `None` while the process stops, which an open stream would delay.
    fn snapshot(&self) -> Option<String> {
        let stop = &self.process.drain;
        (!stop.refuses() && !stop.is_closing()).then(|| self.state().to_string())
    }

    /// The response to `/readyz`: whether the process accepts requests.
    fn readiness(&self) -> Reply {
        let (status, line) = self.ready(&self.process.metrics.conditions.present());
        Reply::text(status, line)
    }

    /// The status of `/readyz` under these conditions, and its line.
    fn ready(&self, present: &[ActiveCondition]) -> (u16, &'static str) {
        let lacks_node = |active: &ActiveCondition| {
            active.condition == Condition::NodeUrl && active.finding.is_failing
        };
        if self.process.drain.has_begun() {
            (503, "draining\n")
        } else if self.ready_needs_node && present.iter().any(lacks_node) {
            (503, "no URL of the node answers\n")
        } else {
            (200, "ok\n")
        }
    }

    /// The response to `/readyz?verbose`: the readiness, the verdict and what is wrong.
    fn readiness_in_full(&self) -> Reply {
        let present = self.process.metrics.conditions.present();
        let (status, line) = self.ready(&present);
        let mut body = format!("verdict: {}\nready: {line}", Verdict::of(&present).name());
        for ActiveCondition {
            condition,
            finding,
            since,
        } in present
        {
            let (message, since) = (condition.message(), clock::rfc3339(since));
            let Finding { subject, cause, .. } = finding;
            let about = if subject.is_empty() {
                subject
            } else {
                format!(" ({subject})")
            };
            body.push_str(&format!("{message}{about} since {since}: {cause}\n"));
        }
        Reply {
            body: body.into_bytes().into(),
            ..Reply::text(status, "")
        }
    }

    /// Where a surface listens; `None` if it is off.
    fn listens(&self, surface: Surface) -> Option<String> {
        let listener = self
            .listeners
            .iter()
            .find(|listener| listener.surface == surface)?;
        let tls = if self.surfaces.tls.is_secured(surface) {
            ", with TLS"
        } else {
            ""
        };
        Some(format!("{}{tls}", listener.listen))
    }

    /// The most recent warnings and errors, newest first.
    fn errors(&self) -> Reply {
        let lines = self.process.log.recent().newest().into_iter().map(|event| {
            json!({
                "at_ms": millis(event.at),
                "level": event.level.as_str().to_ascii_lowercase(),
                "text": event.text,
            })
        });
        Reply::serialize(200, &lines.collect::<Value>())
    }

    /// The outcome of the last reload, and the keys whose values differ from those at the start. A
    /// `live` change is active, the others wait for a restart. A secret is shown as the path of its
    /// file.
    fn configuration(&self) -> Reply {
        let read = self.in_force.last_reload();
        let changes = self.in_force.started().changes(&read.values);
        let changes = changes.into_iter().map(|change| {
            json!({
                "key": change.key,
                "from": change.from,
                "to": change.to,
                "live": change.effect == Effect::Live,
            })
        });
        let configuration = json!({
            "reloaded_ms": read.at.map(millis),
            "mistaken": read.failed,
            "changes": changes.collect::<Value>(),
        });
        Reply::serialize(200, &configuration)
    }
}

impl Operator {
    /// Serves `admin`.
    pub fn new(admin: Admin) -> Self {
        Self {
            samples: samples::registry(&admin),
            documents: Documents::new(|surface| admin.listens(surface)),
            admin: Arc::new(admin),
            events: Arc::new(Events::new()),
        }
    }

    /// The task that samples the history of the plots.
    pub fn sampler(&self) -> Sampler {
        Sampler(Arc::clone(&self.admin))
    }

    fn metrics(&self) -> Reply {
        let mut families = self.admin.process.metrics.gather();
        families.extend(self.samples.gather());
        let text = telemetry::encode(&families);
        Reply::new(200, "text/plain; version=0.0.4; charset=utf-8", text)
    }

    /// Routes and authorizes a request.
    fn route(&self, request: &Request, header: &RequestHeader) -> Response {
        let head = request.head(header);
        if framing(&head).is_err() {
            let text = "send Content-Length or Transfer-Encoding: chunked, not both\n";
            return Response::Reply(Reply::text(400, text));
        }
        let (path, query) = split(head.target);
        let is_verbose = path == b"/readyz" && query == Some(b"verbose");
        let is_probe = matches!(path, b"/livez" | b"/readyz") && !is_verbose;
        let is_metrics = path == b"/metrics";
        let searches = matches!(path, b"/journal" | b"/journal/entries");
        let is_data =
            searches || matches!(path, b"/events" | b"/history" | b"/errors" | b"/config");
        let file = page::file(path).or_else(|| self.documents.reply(path));
        let is_known = is_probe || is_verbose || is_metrics || file.is_some() || is_data;
        if !is_known || (query.is_some() && !searches && !is_verbose) {
            let text = "not found: try /, /docs, /metrics, /livez or /readyz\n";
            return Response::Reply(Reply::text(404, text));
        }
        if !matches!(head.method, "GET" | "HEAD") {
            let reply = Reply::text(405, "GET or HEAD\n");
            return Response::Reply(Reply {
                allow: Some("GET, HEAD"),
                ..reply
            });
        }
        let allowed = match path {
            _ if is_probe => Ok(()),
            _ if is_metrics => self.admin.access.check_scrape(&head),
            _ => self.admin.access.check(&head),
        };
        match allowed {
            Err(denied) => Response::Reply(refused(denied)),
            Ok(()) if is_probe || is_metrics => Response::Reply(match path {
                b"/metrics" => self.metrics(),
                b"/readyz" => self.admin.readiness(),
                _ => Reply::text(200, "ok\n"),
            }),
            Ok(()) if is_verbose => Response::Reply(self.admin.readiness_in_full()),
            Ok(()) => match file {
                Some(file) => Response::Reply(file),
                None => self.data(path, query.unwrap_or_default()),
            },
        }
    }

    /// The data of the page.
    fn data(&self, path: &[u8], query: &[u8]) -> Response {
        let query = match path {
            b"/events" => return Response::Events,
            b"/history" => return Response::Reply(self.admin.history.reply()),
            b"/errors" => return Response::Reply(self.admin.errors()),
            b"/config" => return Response::Reply(self.admin.configuration()),
            b"/journal" => JournalQuery::search(query),
            _ => JournalQuery::entries(query),
        };
        match query {
            Ok(query) => Response::Journal(query),
            Err(message) => Response::Reply(Reply::serialize(400, &json!({ "message": message }))),
        }
    }

    async fn answer(&self, response: Response, method: &Method) -> Reply {
        match response {
            Response::Reply(reply) => reply,
            Response::Events if *method == Method::HEAD => Events::head(),
            Response::Events => {
                let admin = Arc::clone(&self.admin);
                self.events
                    .subscribe(move || admin.snapshot())
                    .unwrap_or_else(|| {
                        let reply = Reply::text(503, "too many open pages: close one\n");
                        Reply {
                            retry_after: Some(5),
                            ..reply
                        }
                    })
            }
            Response::Journal(query) => {
                let Some((journal, runtime)) = &self.admin.journal else {
                    return Reply::text(404, "no relay is configured, so there is no journal\n");
                };
                let journal = journal.clone();
                // the store runs on its own runtime
                let found = runtime.spawn(async move { query.answer(&journal).await });
                found
                    .await
                    .unwrap_or_else(|_| Reply::text(500, "the search was aborted\n"))
            }
        }
    }
}

/// The path, and the query if there is one.
fn split(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut parts = target.splitn(2, |byte| *byte == b'?');
    (parts.next().unwrap_or_default(), parts.next())
}

fn refused(denied: Denied) -> Reply {
    match denied {
        Denied::Token => {
            let mut reply = Reply::text(401, "the operator's token is required\n");
            reply.field("www-authenticate", "Bearer");
            // browsers prompt for a user name, which may be anything, and the token as the password
            reply.field(
                "www-authenticate",
                r#"Basic realm="portcullis", charset="UTF-8""#,
            );
            reply
        }
        Denied::Host => Reply::text(
            421,
            "unknown host: use 127.0.0.1, localhost, or the configured address\n",
        ),
        Denied::CrossSite => Reply::text(403, "requests from other web pages are refused\n"),
    }
}

#[async_trait]
impl HttpServerApp for Operator {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        _: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let header = session.req_header();
        let mut request = Handoff::of(header)?.take().ok()?;
        // one request per connection: scrapes, probes and operators are few
        request.stop_keepalive();
        let response = self.route(&request, header);
        let value = header.headers.get(&X_REQUEST_ID);
        let request_id = self.admin.process.request_ids.accept_or_mint(value);
        let mut reply = page::guarded(self.answer(response, &header.method).await);
        let context = ResponseContext {
            chunks: header.version == Version::HTTP_11,
            without_body: header.method == Method::HEAD,
            ..ResponseContext::closing(request_id.as_str())
        };
        let sent = request.send(&mut reply, &context, SEND_TIMEOUT).await;
        if sent.result.is_ok() {
            Handoff::of(header)?.put(request);
        }
        None
    }
}
