//! One permitted read: given again, shared with others who ask the same now, or asked of the node.

use super::Settings;
use super::asked::Asked;
use super::cache::{Cache, View};
use super::flights::{Flights, Seat};
use super::repeats::Repeats;
use crate::node::{Answer, Fault, Node, Over};
use crate::telemetry::CacheUse;
use ahash::RandomState;
use portcullis_filters::rpc::Method;
use portcullis_filters::rpc::keep::Keepable;
use portcullis_filters::rpc::params::BlockId;
use portcullis_filters::verdict::ReadPermit;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What answers reads.
pub(super) struct Reads {
    node: Arc<Node>,
    pub(super) cache: Arc<Cache>,
    repeats: Repeats,
    flights: Arc<Flights<Result<Answer, Fault>>>,
    /// What reads are hashed with.
    keys: RandomState,
}

/// A read whose body came before, and its answer from the cache.
pub struct Repeated<'a> {
    /// The method.
    pub method: Method,
    /// The JSON text of the id that it has this time.
    pub id: &'a str,
    /// The answer.
    pub answer: Answer,
}

/// A read that has begun.
pub struct Begun<'a> {
    cache: CacheUse,
    from: Source<'a>,
}

enum Source<'a> {
    Cache(Answer),
    Node {
        reads: &'a Reads,
        question: Question<'a>,
        /// With others who ask the same, unless everybody asks alone.
        seat: Option<Seat<Result<Answer, Fault>>>,
    },
}

/// What to ask the node, and what to do with its answer.
struct Question<'a> {
    asked: Arc<Asked>,
    traceparent: Option<&'a [u8]>,
    /// What stood when it was begun.
    view: View,
    keeping: Option<Keeping>,
}

/// How an answer may be kept.
struct Keeping {
    /// What it is an answer to.
    asked: Arc<Asked>,
    rule: Keepable,
    /// The same read at the settled block, where that answers this one for good.
    settled: Option<(Asked, u64)>,
}

impl Begun<'_> {
    /// How the cache takes part.
    pub fn cache(&self) -> CacheUse {
        self.cache
    }

    /// The answer, and in `took` how long was waited for the node.
    ///
    /// # Errors
    /// The fault that kept the node's answer from being passed on.
    pub async fn answer(self, took: &mut Duration) -> Result<Answer, Fault> {
        let (reads, question, mut seat) = match self.from {
            Source::Cache(answer) => return Ok(answer),
            Source::Node { reads, question, seat } => (reads, question, seat),
        };
        let start = Instant::now();
        let deadline = start + reads.node.timeout();
        let answer = loop {
            match seat {
                None => break reads.ask(&question, deadline).await,
                Some(Seat::Leads(lead)) => {
                    let answer = reads.ask(&question, deadline).await;
                    lead.land(&answer);
                    break answer;
                }
                Some(Seat::Follows(told)) => match timeout_at(deadline, told).await {
                    Ok(Ok(answer)) => break answer,
                    Err(_) => break Err(Fault::Timeout),
                    // the leader has gone
                    Ok(Err(_)) => seat = Some(reads.join(question.view.epoch, &question.asked)),
                },
            }
        };
        *took = start.elapsed();
        answer
    }
}

impl Reads {
    pub(super) fn new(node: Arc<Node>, cache: Cache) -> Self {
        let keys = RandomState::new();
        let (cache, repeats) = (Arc::new(cache), Repeats::new());
        Self { node, cache, repeats, flights: Flights::new(), keys }
    }

    /// What is kept for a body that came before, if its method is still let through.
    pub(super) fn repeated<'a>(
        &self,
        settings: &Settings,
        body: &'a [u8],
    ) -> Option<Repeated<'a>> {
        let view = self.cache.view();
        let may_hit = settings.cache && view.in_use;
        let (judged, id) = may_hit.then(|| self.repeats.find(body)).flatten()?;
        let method = judged.method;
        let answer = self.cache.get(&judged.asked, &view);
        let answer = answer.filter(|_| settings.policy.methods.contains(method))?;
        Some(Repeated { method, id, answer })
    }

    /// Begins a permitted read.
    pub(super) fn begin<'a>(
        &'a self,
        settings: &Settings,
        body: &[u8],
        permit: &ReadPermit<'_>,
        traceparent: Option<&'a [u8]>,
    ) -> Begun<'a> {
        let view = self.cache.view();
        let key = |call| Asked::new(call, &self.keys);
        let asked = Arc::new(key(permit.call()));
        let rule = Keepable::of(permit.method(), permit.params());
        let rule = rule.filter(|_| settings.cache && view.in_use);
        // whatever tag it is asked at, it is the same class
        let at_head = (rule == Some(Keepable::ClassAtHead))
            .then(|| Arc::new(key(permit.call_at(BlockId::Latest))));
        let kept_as = at_head.as_ref().unwrap_or(&asked);
        let kept = || rule.and_then(|_| self.cache.get(kept_as, &view));
        let hit = |answer| {
            self.repeats.add(body, permit, kept_as);
            Begun { cache: CacheUse::Hit, from: Source::Cache(answer) }
        };
        if let Some(answer) = kept() {
            return hit(answer);
        }
        let mut seat = settings.single_flight.then(|| self.join(view.epoch, &asked));
        if let Some(Seat::Leads(lead)) = seat {
            // who came as a flight ended missed the cache before, and finds what it brought now
            if let Some(answer) = kept() {
                lead.land(&Ok(answer.clone()));
                return hit(answer);
            }
            seat = Some(Seat::Leads(lead));
        }
        let keeping = rule.map(|rule| {
            let settled = view.settled.filter(|_| at_head.is_some());
            let at = |number| (key(permit.call_at(BlockId::Number(number))), number);
            Keeping { asked: Arc::clone(kept_as), rule, settled: settled.map(at) }
        });
        let question = Question { asked, traceparent, view, keeping };
        let cache = match seat {
            None if !settings.cache => CacheUse::Off,
            None | Some(Seat::Leads(_)) => CacheUse::Miss,
            Some(Seat::Follows(_)) => CacheUse::Shared,
        };
        Begun { cache, from: Source::Node { reads: self, question, seat } }
    }

    fn join(&self, epoch: u64, asked: &Arc<Asked>) -> Seat<Result<Answer, Fault>> {
        self.flights.join(epoch, Arc::clone(asked))
    }

    /// Asks the node, until `deadline`, and keeps what may be kept.
    async fn ask(&self, question: &Question<'_>, deadline: Instant) -> Result<Answer, Fault> {
        let Question { asked, traceparent, view, keeping } = question;
        if let Some(Keeping { asked, settled: Some((settled, number)), .. }) = keeping {
            let answer = self.fetch(deadline, settled, *traceparent).await?;
            if answer.is_result() {
                self.keep(asked, Keepable::ClassAt(*number), view, &answer);
                return Ok(answer);
            }
            // newer than the settled block, or the node does not go back that far
        }
        let answer = self.fetch(deadline, asked, *traceparent).await?;
        if let Some(Keeping { asked, rule, .. }) = keeping
            && answer.is_result()
        {
            self.keep(asked, *rule, view, &answer);
        }
        Ok(answer)
    }

    async fn fetch(
        &self,
        deadline: Instant,
        asked: &Asked,
        traceparent: Option<&[u8]>,
    ) -> Result<Answer, Fault> {
        let request = |id, out: &mut Vec<u8>| asked.call().write_request(id, out);
        self.node.fetch(request, Over::Pool, traceparent, deadline).await
    }

    fn keep(&self, asked: &Arc<Asked>, rule: Keepable, view: &View, answer: &Answer) {
        let result = std::str::from_utf8(&answer.payload).ok();
        if let Some(keep) = result.and_then(|result| rule.judge(result)) {
            self.cache.keep(Arc::clone(asked), answer, keep, view);
        }
    }
}
