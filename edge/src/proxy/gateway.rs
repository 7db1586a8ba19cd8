//! The gateway behind the proxy.

use super::{RequestContext, Surface, reference};
use crate::gateway::{Caller, Gateway, Lookup, Settings};
use crate::http::clients::{RequestLimiter, Running, Settings as _, Ticket, Uncounted};
use crate::node::{Answer, NodeError};
use crate::reply::coding::{self, Coding};
use crate::reply::{Cors, ErrorFormat, Reply};
use bytes::Bytes;
use pingora_limits::inflight::Guard;
use portcullis_base::io::cold;
use portcullis_base::io::gzip::MIN_BODY;
use portcullis_base::telemetry::{self, CacheUse, RequestRecord, Stage};
use portcullis_filters::head::Head;
use portcullis_filters::policy::{
    Admission, GatewayCall, JudgedHead, PublicDocument, name_version,
};
use portcullis_filters::position::{ChainPosition, MalformedPosition};
use portcullis_filters::verdict::{Reason, Refusal};
use std::sync::Arc;
use tokio::time::Instant;

/// Whether the rate limit counts a client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    /// The client's requests are counted.
    Limited,
    /// The client is one of `gateway.exempt`.
    Exempt,
}

/// A judged request head, and whether its client is counted.
#[derive(Debug)]
pub struct JudgedClient {
    head: JudgedHead,
    counting: Counting,
}

impl Surface for Gateway {
    const NAME: telemetry::Surface = telemetry::Surface::Gateway;
    const STYLE: ErrorFormat = ErrorFormat::JsonRpc;
    type Settings = Settings;
    type Judged = JudgedClient;
    type Call = GatewayCall;

    fn running(&self) -> &Running<Settings> {
        &self.running
    }

    fn cors<'a>(settings: &'a Settings, _: &[u8]) -> Option<Cors<'a>> {
        // no credentials are involved, so every header may be sent; `*` covers all but the first
        // (Fetch, section 4.9), and old browsers read the names
        let headers = "Authorization, *, Content-Type, Traceparent, X-Chain-Position, X-Request-Id";
        let exposed = "RateLimit, RateLimit-Policy, Retry-After, X-Cache, X-Chain-Position, \
                       X-Request-Id";
        Some(Cors {
            origins: &settings.cors,
            methods: "POST",
            headers,
            exposed,
        })
    }

    fn knows(target: &[u8]) -> bool {
        matches!(target, b"/rpc" | b"/healthz") || PublicDocument::at(target).is_some()
    }

    fn judge(&self, settings: &Settings, head: &Head<'_>) -> Self::Judged {
        let (judged, exempt) = (settings.policy.judge(head), &settings.exempt);
        let is_exempt = !exempt.is_empty() && exempt.contains(judged.client().address);
        let counting = if is_exempt {
            Counting::Exempt
        } else {
            Counting::Limited
        };
        JudgedClient {
            head: judged,
            counting,
        }
    }

    fn admit<'a>(
        &self,
        settings: &Settings,
        judged: &Self::Judged,
        _: &Head<'_>,
        limiter: &RequestLimiter<'a>,
    ) -> Admission<GatewayCall, Guard, Ticket<'a>> {
        let clients = self.running.clients();
        let limits = settings.limits_of(judged.head.client());
        let limiter = limiter.under(limits);
        let enter = |client| clients.enter(client, limits);
        let mut admission = match judged.counting {
            Counting::Limited => {
                settings
                    .policy
                    .admit(&judged.head, &limiter, limiter.now(), enter)
            }
            Counting::Exempt => {
                settings
                    .policy
                    .admit(&judged.head, &Uncounted(&limiter), limiter.now(), enter)
            }
        };
        if let Err(refusal) = &mut admission.verdict
            && let Some(version) = self.version()
        {
            name_version(refusal, &version);
        }
        admission
    }

    async fn answer(
        &self,
        settings: &Arc<Settings>,
        call: GatewayCall,
        body: Bytes,
        context: &RequestContext<'_>,
        record: &mut RequestRecord,
    ) -> Reply {
        if let GatewayCall::Document(document) = call {
            let mut reply = reference::reply(document);
            if settings.gzip && context.accepts_gzip {
                cold(coding::compress(&mut reply, None)).await;
            }
            return reply;
        }
        let (request, id) = match self.inspect(settings, &body) {
            Ok(read) => read,
            Err(refusal) => {
                return Reply::refusal(ErrorFormat::JsonRpc, &refusal, context.request_id);
            }
        };
        record.method = request.method().name();
        // boxed: few requests name a position
        if let Some(position) = context.chain_position.transpose()
            && let Err(reply) = cold(reach_position(self, id, position, context)).await
        {
            return reply;
        }
        let RequestContext {
            client,
            traceparent,
            ..
        } = *context;
        let position = context.chain_position.unwrap_or_default();
        let lookup = self.lookup(
            settings,
            &request,
            Caller {
                client,
                traceparent,
                position,
            },
        );
        let (cache, position) = (lookup.cache(), lookup.position());
        context.metrics.call(request.method(), cache, body.len());
        let answer = match lookup {
            Lookup::Cached(answer, _) => Ok(answer),
            // boxed, so that the future of an immediate answer has no room for a call to the node
            Lookup::Pending(pending) => {
                let start = record.stages.as_ref().map(|_| Instant::now());
                let answer = Box::pin(pending.answer(&mut record.upstream)).await;
                if let Some(start) = start {
                    record.add(waited(record.method, cache, start));
                }
                record.node = answer.as_ref().ok().and_then(|answer| answer.node);
                answer
            }
        };
        note_error(record, &answer);
        let mut reply = match answer {
            Ok(answer) => Reply::answer(id, answer),
            Err(NodeError::OverShare) => return over_share(id, context),
            Err(fault) => node_failed(self, fault, id, context),
        };
        reply.cache = (cache != CacheUse::Off).then(|| cache.name());
        reply.chain_position = position;
        if settings.gzip && reply.body.length() >= MIN_BODY {
            reply.coding = Coding::Negotiable;
            if context.accepts_gzip {
                if reply.gzip.get().is_none() {
                    let payload = coding::payload(&reply.body);
                    cold(self.make_gzip(&request, payload, &reply.gzip)).await;
                }
                coding::encode(&mut reply);
            }
        }
        reply
    }
}

/// Notes the code of the node's error for the trace, if there is one.
fn note_error(record: &mut RequestRecord, answer: &Result<Answer, NodeError>) {
    if record.stages.is_some() {
        record.error_code = answer.as_ref().ok().and_then(Answer::error_code);
    }
}

/// The wait for an answer as a stage, which ends now.
fn waited(method: &'static str, cache: CacheUse, start: Instant) -> Stage {
    let is_call = cache != CacheUse::Shared;
    Stage {
        name: if is_call { method } else { "shared call" },
        is_call,
        time: [start, Instant::now()],
    }
}

/// The refusal of a client whose large answers hold its share of the memory. As for an answer that
/// is ready, there are no fields of the cache.
fn over_share(id: &str, context: &RequestContext<'_>) -> Reply {
    let refusal = Refusal {
        id: Some(id.into()),
        ..NodeError::OverShare.into()
    };
    Reply::refusal(ErrorFormat::JsonRpc, &refusal, context.request_id)
}

/// The response to a read that the node did not answer.
fn node_failed(
    gateway: &Gateway,
    fault: NodeError,
    id: &str,
    context: &RequestContext<'_>,
) -> Reply {
    let reply = Reply::fault(ErrorFormat::JsonRpc, fault, Some(id), context.request_id);
    reply.with_retry_after_of(gateway.node())
}

/// Waits until the chain reaches the position that a request names, or returns the refusal.
async fn reach_position(
    gateway: &Gateway,
    id: &str,
    position: Result<ChainPosition, MalformedPosition>,
    context: &RequestContext<'_>,
) -> Result<(), Reply> {
    let refusal = match position {
        Ok(position) => match gateway.catch_up(position, context.client).await {
            Ok(true) => return Ok(()),
            Ok(false) => Refusal::new(
                Reason::ChainPositionBehind,
                "the chain is not at this X-Chain-Position: retry, or send none if it went back",
            ),
            Err(fault) => fault.into(),
        },
        Err(MalformedPosition) => Refusal::new(
            Reason::InvalidRequest,
            "X-Chain-Position must be one EPOCH.HEIGHT",
        ),
    };
    let is_behind = refusal.reason == Reason::ChainPositionBehind;
    let refusal = Refusal {
        id: Some(id.into()),
        ..refusal
    };
    let reply = Reply::refusal(ErrorFormat::JsonRpc, &refusal, context.request_id);
    let mut reply = reply.with_retry_after_of(gateway.node());
    reply.chain_position = gateway.position().filter(|_| is_behind);
    Err(reply)
}
