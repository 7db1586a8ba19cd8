//! One permitted read: given again, shared with others who ask the same now, or asked of the node.

use super::Settings;
use super::cache::{Cache, View};
use super::flights::{Flight, Flights, Part};
use crate::node::{Answer, Fault, Node, Over};
use crate::telemetry::CacheUse;
use portcullis_filters::rpc::keep::Keepable;
use portcullis_filters::rpc::params::BlockId;
use portcullis_filters::verdict::{ReadCall, ReadPermit};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What answers reads.
pub(super) struct Reads {
    node: Arc<Node>,
    pub(super) cache: Arc<Cache>,
    flights: Arc<Flights<Result<Answer, Fault>>>,
}

/// A read that has begun.
pub struct Begun {
    cache: CacheUse,
    from: Source,
}

enum Source {
    Cache(Answer),
    Flight(Flight<Result<Answer, Fault>>),
    /// For this one alone, not asked yet.
    Node(Arc<Reads>, Question),
}

/// What to ask the node, and what to do with its answer.
struct Question {
    call: Arc<ReadCall>,
    traceparent: Option<Vec<u8>>,
    keeping: Option<Keeping>,
}

/// How an answer may be kept.
struct Keeping {
    /// What it is an answer to.
    call: Arc<ReadCall>,
    rule: Keepable,
    /// What stood when the node was asked.
    view: View,
    /// The same read at the settled block, where that answers this one for good.
    settled: Option<(ReadCall, u64)>,
}

impl Begun {
    /// How the cache takes part.
    pub fn cache(&self) -> CacheUse {
        self.cache
    }

    /// The answer, and in `took` how long was waited for the node.
    ///
    /// # Errors
    /// The fault that kept the node's answer from being passed on.
    pub async fn answer(self, took: &mut Duration) -> Result<Answer, Fault> {
        let start = Instant::now();
        let answer = match self.from {
            Source::Cache(answer) => return Ok(answer),
            Source::Flight(flight) => flight.await,
            Source::Node(reads, question) => reads.ask(question).await,
        };
        *took = start.elapsed();
        answer
    }
}

impl Reads {
    pub(super) fn new(node: Arc<Node>, cache: Cache) -> Arc<Self> {
        Arc::new(Self { node, cache: Arc::new(cache), flights: Flights::new() })
    }

    /// Begins a permitted read.
    pub(super) fn begin(
        self: &Arc<Self>,
        settings: &Settings,
        permit: &ReadPermit<'_>,
        traceparent: Option<&[u8]>,
    ) -> Begun {
        let view = self.cache.view();
        let call = permit.call();
        let rule = Keepable::of(permit.method(), permit.params());
        let rule = rule.filter(|_| settings.cache && view.in_use);
        // whatever tag it is asked at, it is the same class
        let at_head =
            (rule == Some(Keepable::ClassAtHead)).then(|| permit.call_at(BlockId::Latest));
        if rule.is_some()
            && let Some(answer) = self.cache.get(at_head.as_ref().unwrap_or(&call), &view)
        {
            return Begun { cache: CacheUse::Hit, from: Source::Cache(answer) };
        }
        let call = Arc::new(call);
        let question = || Question {
            call: Arc::clone(&call),
            traceparent: traceparent.map(<[u8]>::to_vec),
            keeping: rule.map(|rule| {
                let settled = view.settled.filter(|_| at_head.is_some());
                let at = |number| (permit.call_at(BlockId::Number(number)), number);
                let call = at_head.map_or_else(|| Arc::clone(&call), Arc::new);
                Keeping { call, rule, view, settled: settled.map(at) }
            }),
        };
        if !settings.single_flight {
            let cache = if settings.cache { CacheUse::Miss } else { CacheUse::Off };
            return Begun { cache, from: Source::Node(Arc::clone(self), question()) };
        }
        let begin = || Arc::clone(self).ask(question());
        let (flight, part) = self.flights.join(view.epoch, Arc::clone(&call), begin);
        let cache = match part {
            Part::Leads => CacheUse::Miss,
            Part::Joins => CacheUse::Shared,
        };
        Begun { cache, from: Source::Flight(flight) }
    }

    /// Asks the node, within one deadline, and keeps what may be kept.
    async fn ask(self: Arc<Self>, question: Question) -> Result<Answer, Fault> {
        let Question { call, traceparent, keeping } = question;
        let (deadline, trace) = (self.node.deadline(), traceparent.as_deref());
        if let Some(Keeping { call, view, settled: Some((settled, number)), .. }) = &keeping {
            let answer = self.fetch(deadline, settled, trace).await?;
            if answer.is_result() {
                self.keep(call, Keepable::ClassAt(*number), view, &answer);
                return Ok(answer);
            }
            // newer than the settled block, or the node does not go back that far
        }
        let answer = self.fetch(deadline, &call, trace).await?;
        if let Some(Keeping { call, rule, view, .. }) = &keeping
            && answer.is_result()
        {
            self.keep(call, *rule, view, &answer);
        }
        Ok(answer)
    }

    async fn fetch(
        &self,
        deadline: Instant,
        call: &ReadCall,
        traceparent: Option<&[u8]>,
    ) -> Result<Answer, Fault> {
        let request = |id, out: &mut Vec<u8>| call.write_request(id, out);
        self.node.fetch_by(deadline, request, Over::Pool, traceparent).await
    }

    fn keep(&self, call: &Arc<ReadCall>, rule: Keepable, view: &View, answer: &Answer) {
        let result = std::str::from_utf8(&answer.payload).ok();
        if let Some(keep) = result.and_then(|result| rule.judge(result)) {
            self.cache.keep(Arc::clone(call), answer, keep, view);
        }
    }
}
