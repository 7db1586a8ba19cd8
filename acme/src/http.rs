//! The listener on port 80: answers challenges (RFC 8555, section 8.3), and redirects everything
//! else to https.

use ::http::{HeaderMap, Method, header};
use async_trait::async_trait;
use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use portcullis_base::config::AcmeConfig;
use portcullis_edge::http::certificates::Certificates;
use portcullis_edge::http::context::ServerContext;
use portcullis_edge::http::{Handoff, X_REQUEST_ID};
use portcullis_edge::reply::{Reply, ResponseContext};
use portcullis_filters::head::framing;
use std::sync::Arc;
use std::time::Duration;

const CHALLENGE: &[u8] = b"/.well-known/acme-challenge/";
/// How long a client may take to read a response.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The HTTP app of the listener.
pub struct ChallengeServer {
    process: ServerContext,
    certificates: Certificates,
    redirects: bool,
}

impl ChallengeServer {
    /// Answers the challenges of `certificates`.
    pub fn new(config: &AcmeConfig, process: ServerContext, certificates: Certificates) -> Self {
        Self {
            process,
            certificates,
            redirects: config.http_redirect,
        }
    }

    fn reply(&self, target: &[u8], headers: &HeaderMap) -> Reply {
        if let Some(token) = target.strip_prefix(CHALLENGE) {
            let token = str::from_utf8(token).unwrap_or_default();
            return match self.certificates.challenges.http_answer(token) {
                Some(answer) => Reply::new(200, "application/octet-stream", answer.into_bytes()),
                None => Reply::text(404, "no such challenge\n"),
            };
        }
        match self.location(target, headers).filter(|_| self.redirects) {
            Some(location) => {
                let mut reply = Reply::text(308, "use https\n");
                reply.field("location", location);
                reply
            }
            None => Reply::text(404, "not found\n"),
        }
    }

    /// The https URL of this resource; `None` for a foreign domain, so redirects never lead
    /// elsewhere.
    fn location(&self, target: &[u8], headers: &HeaderMap) -> Option<Vec<u8>> {
        let host = headers.get(header::HOST)?.to_str().ok()?;
        let name = host.split_once(':').map_or(host, |(name, _)| name);
        // the root of the DNS may be written
        let name = name.strip_suffix('.').unwrap_or(name);
        let ordered = self.certificates.ordered();
        let mut domains = ordered.iter().flat_map(|(_, tls)| &tls.domains);
        let domain = domains.find(|domain| domain.eq_ignore_ascii_case(name))?;
        let is_origin_form = target.starts_with(b"/");
        is_origin_form.then(|| [b"https://", domain.as_bytes(), target].concat())
    }
}

#[async_trait]
impl HttpServerApp for ChallengeServer {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        _: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let header = session.req_header();
        let mut request = Handoff::of(header)?.take().ok()?;
        // authorities and browsers send one request per connection
        request.stop_keepalive();
        let mut reply = match header.method {
            _ if framing(&request.head(header)).is_err() => Reply::text(
                400,
                "send Content-Length or Transfer-Encoding: chunked, not both\n",
            ),
            Method::GET | Method::HEAD => self.reply(request.head(header).target, &header.headers),
            _ => Reply {
                allow: Some("GET, HEAD"),
                ..Reply::text(405, "GET or HEAD\n")
            },
        };
        let value = header.headers.get(&X_REQUEST_ID);
        let request_id = self.process.request_ids.accept_or_mint(value);
        let context = ResponseContext {
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
