//! The operator's listener: the page, metrics and probes.
//!
//! `GET /` is a page about the live state of everything, `/docs` one with the documents of all
//! surfaces, `/metrics` Prometheus' text format; `/livez` says that the process runs, `/readyz`
//! that it takes requests: 503 from the moment a stop was asked for. It is on loopback or a Unix
//! socket, or asks for a token. Nothing can be changed here. `access` says who may look; `page` has
//! the files, `events` what they follow, which `snapshot` makes out of `numbers` in the shapes of
//! `state`; `journal` searches what was written.

mod access;
pub mod documents;
mod errors;
mod events;
mod journal;
mod numbers;
mod page;
mod snapshot;
mod state;

pub use access::Access;
pub use errors::AdminErrors;

use crate::config::AppliedConfig;
use crate::config::Listen;
use crate::http::clients::Clients;
use crate::http::context::ServerContext;
use crate::http::respond;
use crate::http::{Handoff, Request, X_REQUEST_ID};
use crate::io::memory::MemoryPool;
use crate::node::Node;
use crate::proxy::surfaces::Surfaces;
use crate::reply::{Persistence, Reply, ResponseContext};
use crate::store::Journal;
use crate::telemetry::{Sample, Surface};
use access::Denied;
use async_trait::async_trait;
use events::{Events, Source};
use http::{Method, Version};
use journal::{Asked, json};
use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use serde::Serialize;
use snapshot::millis;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;

/// To take an answer, or a piece of one that goes on.
const TAKE: Duration = Duration::from_secs(10);

/// A listener of a surface.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The surface.
    pub surface: Surface,
    /// Where it listens, its port known.
    pub listen: Listen,
    /// Connections that it takes at a time.
    pub max_connections: usize,
}

/// What the admin listener shows.
pub struct Admin {
    /// What it shows, and how far a stop is.
    pub process: ServerContext,
    /// When the process began.
    pub started: SystemTime,
    /// Whose state it shows.
    pub surfaces: Surfaces,
    /// Where they listen.
    pub listeners: Vec<Listener>,
    /// The node, as the gateway asks it.
    pub node: Arc<Node>,
    /// The memory for answers.
    pub memory: Arc<MemoryPool>,
    /// What the relay wrote, if there is one, and where it is read.
    pub journal: Option<(Journal, Handle)>,
    /// The configuration.
    pub in_force: Arc<AppliedConfig>,
    /// Who may look.
    pub access: Arc<Access>,
}

/// The admin listener's app.
pub struct Operator {
    admin: Arc<Admin>,
    events: Arc<Events>,
}

/// What a request is for.
enum Wanted {
    /// This: it is known already.
    This(Reply),
    /// The events.
    Events,
    /// Something of the journal.
    Journal(Asked),
}

impl Admin {
    fn sample(&self) -> Sample {
        for (account, waiting) in self.surfaces.relay.iter().flat_map(|relay| relay.signers()) {
            self.process.metrics.relay.queue(account.role, waiting);
        }
        let Surfaces { gateway, relay, sidecar, .. } = &self.surfaces;
        let clients = [
            gateway.as_ref().map(|gateway| gateway.clients()),
            relay.as_ref().map(|relay| relay.clients()),
            sidecar.as_ref().map(|sidecar| sidecar.clients()),
        ];
        let cache = gateway.as_ref().map(|gateway| gateway.cache());
        let node = self.node.stats();
        Sample {
            limiters: clients.map(|of| of.map(Clients::population).unwrap_or_default()),
            answer_memory: self.memory.taken() as u64,
            answer_memory_limit: self.memory.size() as u64,
            cache: cache.unwrap_or_default(),
            node_idle: node.idle as u64,
            node_busy: node.busy as u64,
            node_open_breakers: node.open_breakers as u64,
            log_dropped: self.process.log.dropped(),
            certificates_end: Surface::ALL
                .map(|surface| self.surfaces.tls.of(surface).map(|identity| identity.not_after)),
        }
    }

    fn metrics(&self) -> Reply {
        let text = self.process.metrics.text(&self.sample());
        Reply::new(200, "text/plain; version=0.0.4; charset=utf-8", text)
    }

    fn readiness(&self) -> Reply {
        if self.process.drain.has_begun() {
            return Reply::text(503, "draining\n");
        }
        Reply::text(200, "ok\n")
    }

    /// The last warnings and errors, newest first.
    fn errors(&self) -> Reply {
        /// One of them.
        #[derive(Serialize)]
        struct Line {
            /// Milliseconds since 1970.
            at_ms: u64,
            level: &'static str,
            text: String,
        }
        let lines = self.process.log.recent().newest().into_iter().map(|event| Line {
            at_ms: millis(event.at),
            level: if event.level == log::Level::Error { "error" } else { "warn" },
            text: event.text,
        });
        Reply::json(200, json(&lines.collect::<Vec<_>>()))
    }

    /// What of the configuration changed since the start. Of a secret it has the file's path only.
    fn configuration(&self) -> Reply {
        /// The last reload, and what differs from the start.
        #[derive(Serialize)]
        struct Configuration<'a> {
            /// When somebody last asked for a reload, in milliseconds since 1970.
            reloaded_ms: Option<u64>,
            /// Whether the file had a mistake then, so that nothing changed.
            mistaken: bool,
            changes: Vec<Changed<'a>>,
        }
        /// One key.
        #[derive(Serialize)]
        struct Changed<'a> {
            key: &'static str,
            /// At the start.
            from: &'a str,
            /// In the file.
            to: &'a str,
            /// Whether it is in force already, or waits for a restart.
            live: bool,
        }
        let read = self.in_force.last_reload();
        let changes = self.in_force.started().changes(&read.values);
        let changes = changes.into_iter().map(|change| Changed {
            key: change.key,
            from: change.from,
            to: change.to,
            live: change.live,
        });
        Reply::json(
            200,
            json(&Configuration {
                reloaded_ms: read.at.map(millis),
                mistaken: read.failed,
                changes: changes.collect(),
            }),
        )
    }
}

impl Source for Admin {
    fn snapshot(&self) -> Option<String> {
        // whoever listens would hold up a stop
        let stop = &self.process.drain;
        (!stop.refuses() && !stop.is_closing()).then(|| json(&self.state()))
    }
}

impl Operator {
    /// Shows `admin`.
    pub fn new(admin: Admin) -> Self {
        Self { admin: Arc::new(admin), events: Arc::new(Events::new()) }
    }

    /// What a request wants, as far as its head tells.
    fn judge(&self, request: &Request, header: &RequestHeader) -> Wanted {
        let head = request.head(header);
        let (path, query) = split(head.target);
        let is_probe = matches!(path, b"/livez" | b"/readyz");
        let is_metrics = path == b"/metrics";
        let data = [&b"/events"[..], b"/errors", b"/config", b"/journal", b"/journal/entries"];
        let searches = path.starts_with(b"/journal");
        let file = page::file(path).or_else(|| documents::reply(path));
        let is_known = is_probe || is_metrics || file.is_some() || data.contains(&path);
        if !is_known || (query.is_some() && !searches) {
            let text = "not found: try /, /docs, /metrics, /livez or /readyz\n";
            return Wanted::This(Reply::text(404, text));
        }
        if !matches!(head.method, "GET" | "HEAD") {
            let reply = Reply::text(405, "GET or HEAD\n");
            return Wanted::This(Reply { allow: Some("GET, HEAD"), ..reply });
        }
        let allowed = match path {
            _ if is_probe => Ok(()),
            _ if is_metrics => {
                self.admin.access.holds_token(&head).then_some(()).ok_or(Denied::Token)
            }
            _ => self.admin.access.judge(&head),
        };
        match allowed {
            Err(denied) => Wanted::This(refused(denied)),
            Ok(()) if is_probe || is_metrics => Wanted::This(match path {
                b"/metrics" => self.admin.metrics(),
                b"/readyz" => self.admin.readiness(),
                _ => Reply::text(200, "ok\n"),
            }),
            Ok(()) => match file {
                Some(file) => Wanted::This(file),
                None => self.data(path, query.unwrap_or_default()),
            },
        }
    }

    /// What the page asks for.
    fn data(&self, path: &[u8], query: &[u8]) -> Wanted {
        let asked = match path {
            b"/events" => return Wanted::Events,
            b"/errors" => return Wanted::This(self.admin.errors()),
            b"/config" => return Wanted::This(self.admin.configuration()),
            b"/journal" => Asked::search(query),
            _ => Asked::entries(query),
        };
        match asked {
            Ok(asked) => Wanted::Journal(asked),
            Err(message) => Wanted::This(Reply::json(400, json(&Mistake { message }))),
        }
    }

    async fn answer(&self, wanted: Wanted, is_head: bool) -> Reply {
        match wanted {
            Wanted::This(reply) => reply,
            Wanted::Events if is_head => Events::head(),
            Wanted::Events => self.events.listen(Arc::clone(&self.admin)).unwrap_or_else(|| {
                let reply = Reply::text(503, "too many pages are open: close one\n");
                Reply { retry_after: Some(5), ..reply }
            }),
            Wanted::Journal(asked) => {
                let Some((journal, runtime)) = &self.admin.journal else {
                    return Reply::text(404, "there is no relay, so there is no journal\n");
                };
                let journal = journal.clone();
                // the connections of the store live on a runtime of their own
                let found = runtime.spawn(async move { asked.answer(&journal).await });
                found.await.unwrap_or_else(|_| Reply::text(500, "the search was ended\n"))
            }
        }
    }
}

/// What is wrong with a query.
#[derive(Serialize)]
struct Mistake {
    message: String,
}

/// The path, and the query if there is one.
fn split(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut parts = target.splitn(2, |byte| *byte == b'?');
    (parts.next().unwrap_or_default(), parts.next())
}

fn refused(denied: Denied) -> Reply {
    match denied {
        Denied::Token => {
            let mut reply = Reply::text(401, "the operator's token is asked for\n");
            reply.field("www-authenticate", "Bearer");
            // a browser asks its user: any name, and the token for a password
            reply.field("www-authenticate", r#"Basic realm="portcullis", charset="UTF-8""#);
            reply
        }
        Denied::Name => {
            Reply::text(421, "not here: use 127.0.0.1, localhost, or the address it listens on\n")
        }
        Denied::Elsewhere => Reply::text(403, "not for other web pages\n"),
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
        // one request a connection: scrapes, probes and people are few
        request.stop_keepalive();
        let wanted = self.judge(&request, header);
        let given = header.headers.get(&X_REQUEST_ID);
        let request_id = self.admin.process.request_ids.accept_or_mint(given);
        let is_head = header.method == Method::HEAD;
        let mut reply = page::guarded(self.answer(wanted, is_head).await);
        let context = ResponseContext {
            request_id: request_id.as_str(),
            quota: None,
            cross_origin: None,
            persistence: Persistence::Close,
            chunks: header.version == Version::HTTP_11,
            without_body: is_head,
        };
        let sent = respond::send(&mut request, &mut reply, &context, TAKE).await;
        if sent.result.is_ok() {
            Handoff::of(header)?.put(request);
        }
        None
    }
}
