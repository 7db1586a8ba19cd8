//! One permitted read: given again, shared with others who ask the same now, or asked of the node.

use super::Settings;
use super::cache::{Cache, View};
use super::cache_key::{CacheKey, ReadRequest};
use super::flights::{Flights, Role};
use super::parsed_bodies::ParsedBodyCache;
use crate::node::{Answer, ConnectionChoice, Node, NodeError};
use crate::telemetry::CacheUse;
use ahash::RandomState;
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::rpc::keep::Keepable;
use portcullis_filters::verdict::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What answers reads.
pub(super) struct Reads {
    node: Arc<Node>,
    pub(super) cache: Arc<Cache>,
    bodies: ParsedBodyCache,
    flights: Arc<Flights<Result<Answer, NodeError>>>,
    /// What reads are hashed with.
    keys: RandomState,
}

/// A read that has begun.
pub enum Lookup<'a> {
    /// Its answer was kept.
    Cached(Answer),
    /// It has to be asked for.
    Pending(PendingRead<'a>),
}

/// A read that the node is asked for, unless somebody else is asking the same.
pub struct PendingRead<'a> {
    reads: &'a Reads,
    question: Question<'a>,
    /// With others who ask the same, unless everybody asks alone.
    role: Option<Role<Result<Answer, NodeError>>>,
    cache: CacheUse,
}

/// What to ask the node, and what to do with its answer.
struct Question<'a> {
    wanted: &'a ReadRequest,
    traceparent: Option<&'a [u8]>,
    /// What stood when it was begun.
    view: View,
    /// How the answer may be kept.
    rule: Option<Keepable>,
}

impl Lookup<'_> {
    /// How the cache takes part.
    pub fn cache(&self) -> CacheUse {
        match self {
            Self::Cached(_) => CacheUse::Hit,
            Self::Pending(pending) => pending.cache,
        }
    }
}

impl PendingRead<'_> {
    /// The answer, and in `took` how long was waited for the node.
    ///
    /// # Errors
    /// The fault that kept the node's answer from being passed on.
    pub fn answer(self, took: &mut Duration) -> impl Future<Output = Result<Answer, NodeError>> {
        let Self { reads, question, mut role, .. } = self;
        let start = Instant::now();
        // a block, which holds once what a function would hold twice
        async move {
            let deadline = start + reads.node.timeout();
            let answer = loop {
                let Some(Role::Follower(answer)) = &mut role else {
                    break reads.ask(&question, deadline).await;
                };
                match timeout_at(deadline, answer).await {
                    Ok(Ok(answer)) => break answer,
                    Err(_) => break Err(NodeError::Timeout),
                    // the leader has gone
                    Ok(Err(_)) => role = Some(reads.join(question.view.epoch, question.wanted)),
                }
            };
            if let Some(Role::Leader(lead)) = role.take() {
                lead.complete(&answer);
            }
            *took = start.elapsed();
            answer
        }
    }
}

impl Reads {
    pub(super) fn new(node: Arc<Node>, cache: Cache) -> Self {
        let (cache, keys) = (Arc::new(cache), RandomState::new());
        Self { node, cache, bodies: ParsedBodyCache::new(), flights: Flights::new(), keys }
    }

    /// The read that this body asks for, and the JSON text of the request's id.
    ///
    /// # Errors
    /// What the policy refuses it for.
    pub(super) fn read<'a>(
        &self,
        policy: &GatewayPolicy,
        body: &'a [u8],
    ) -> Result<(Arc<ReadRequest>, &'a str), Refusal> {
        let said = self.bodies.said(body);
        if let Some(said) = &said
            && let Some(wanted) = self.bodies.find(said)
            && policy.methods.contains(wanted.method())
        {
            return Ok((wanted, said.id()));
        }
        let permit = policy.inspect(body)?;
        let id = permit.id();
        let wanted = Arc::new(ReadRequest::new(permit.into_read(), &self.keys));
        if let Some(said) = said {
            self.bodies.add(&said, id, &wanted);
        }
        Ok((wanted, id.as_str()))
    }

    /// Begins a permitted read.
    pub(super) fn begin<'a>(
        &'a self,
        settings: &Settings,
        wanted: &'a ReadRequest,
        traceparent: Option<&'a [u8]>,
    ) -> Lookup<'a> {
        let view = self.cache.view();
        let rule = wanted.rule.filter(|_| settings.cache && view.in_use);
        let kept = || rule.and_then(|_| self.cache.get(wanted.kept_as(), &view));
        if let Some(answer) = kept() {
            return Lookup::Cached(answer);
        }
        let mut role = settings.single_flight.then(|| self.join(view.epoch, wanted));
        if let Some(Role::Leader(lead)) = role {
            // who came as a flight ended missed the cache before, and finds what it brought now
            if let Some(answer) = kept() {
                lead.complete(&Ok(answer.clone()));
                return Lookup::Cached(answer);
            }
            role = Some(Role::Leader(lead));
        }
        let cache = match role {
            None if !settings.cache => CacheUse::Off,
            None | Some(Role::Leader(_)) => CacheUse::Miss,
            Some(Role::Follower(_)) => CacheUse::Shared,
        };
        let question = Question { wanted, traceparent, view, rule };
        Lookup::Pending(PendingRead { reads: self, question, role, cache })
    }

    fn join(&self, epoch: u64, wanted: &ReadRequest) -> Role<Result<Answer, NodeError>> {
        self.flights.join(epoch, Arc::clone(&wanted.asked))
    }

    /// Asks the node, until `deadline`, and keeps what may be kept.
    async fn ask(&self, question: &Question<'_>, deadline: Instant) -> Result<Answer, NodeError> {
        let Question { wanted, traceparent, view, rule } = question;
        if let Some(block) = view.settled.filter(|_| rule.is_some())
            && let Some(settled) = wanted.at(block, &self.keys)
        {
            // boxed, because few reads have another form
            let answer = Box::pin(self.fetch(deadline, &settled, *traceparent)).await?;
            if answer.is_result() {
                self.keep(wanted, Keepable::ClassAt(block), view, &answer);
                return Ok(answer);
            }
            // newer than the settled block, or the node does not go back that far
        }
        let answer = self.fetch(deadline, &wanted.asked, *traceparent).await?;
        if let Some(rule) = rule.filter(|_| answer.is_result()) {
            self.keep(wanted, rule, view, &answer);
        }
        Ok(answer)
    }

    fn fetch<'a>(
        &'a self,
        deadline: Instant,
        asked: &'a CacheKey,
        traceparent: Option<&'a [u8]>,
    ) -> impl Future<Output = Result<Answer, NodeError>> + 'a {
        let request = |id, out: &mut Vec<u8>| asked.call().write_request(id, out);
        self.node.fetch(request, ConnectionChoice::Pooled, traceparent, deadline)
    }

    fn keep(&self, wanted: &ReadRequest, rule: Keepable, view: &View, answer: &Answer) {
        let result = std::str::from_utf8(&answer.payload).ok();
        if let Some(keep) = result.and_then(|result| rule.judge(result)) {
            self.cache.keep(Arc::clone(wanted.kept_as()), answer, keep, view);
        }
    }
}
