//! Sends each call to a URL of the node that may serve it. Tries the next URL if that one gives no
//! valid answer, or one that is older than what clients have seen. `routing` of the pure crate
//! decides; this module performs it.

use super::answer::{Payload, RESULT, failure_class};
use super::route::Choice;
use super::target::{Answered, Origin, Target};
use super::{Answer, Call, CallFailure, ConnectionChoice, Node, NodeError, NodeStatus, Probes};
use portcullis_base::config::NodeConfig;
use portcullis_base::io::gzip::GzipForm;
use portcullis_base::io::{MemoryPermit, MemoryPool};
use portcullis_filters::chain::{End, Repeat, Routing, Standing, Step, Turn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How long a call waits for a URL that is a few blocks behind: long enough for the three rounds of
/// polls that detect a rollback.
const CATCH_UP: Duration = Duration::from_secs(4);
/// The first wait. It is short, since a single URL may be a balancer, whose next node may be ahead.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// Makes calls to the node over connections of its own.
pub struct NodeClient {
    pub(super) node: Arc<Node>,
    pub(super) targets: Arc<[Target]>,
    pub(super) memory: Arc<MemoryPool>,
    timeout: Duration,
    next_id: AtomicU64,
}

/// No URL returned an answer that may be passed on now.
pub(super) struct Unanswered {
    error: NodeError,
    /// An error of a server, which is passed on if no URL answers.
    payload: Option<(Payload, Origin)>,
    /// Whether a URL returned an answer that is older than what clients have seen.
    pub(super) is_behind: bool,
    /// Whether a URL is not used because of its head, which may change soon.
    holds_back: bool,
}

/// Why an answer is not passed on.
enum Rejected {
    /// It is older than what clients have seen.
    Behind,
    /// It is an error of the server itself, which is passed on only if no URL answers.
    Error(Payload),
}

/// The end of an attempt, and the URL's index; `None` if its breaker was open.
pub(super) type Attempted = Option<(Result<Answered, CallFailure>, usize)>;

/// One attempt at a call: the URLs that may get it, and how those that were asked failed.
pub(super) struct Progress<'a> {
    choice: Choice<'a>,
    routing: Routing,
    /// The failure that says most.
    shown: Option<CallFailure>,
    /// The error of a server, and its origin.
    payload: Option<(Payload, Origin)>,
    is_behind: bool,
}

impl<'a> Progress<'a> {
    fn new(choice: Choice<'a>, repeat: Repeat) -> Self {
        Self {
            choice,
            routing: Routing::new(repeat),
            shown: None,
            payload: None,
            is_behind: false,
        }
    }

    /// The step after an attempt that ended like this.
    pub(super) fn after(&self, end: End) -> Step {
        self.routing.after(end)
    }

    fn reject(&mut self, rejected: Rejected, origin: Origin) -> End {
        match rejected {
            Rejected::Behind => {
                self.is_behind = true;
                End::Behind
            }
            Rejected::Error(payload) => {
                if self.routing.shows(End::Error) {
                    self.payload = Some((payload, origin));
                }
                End::Error
            }
        }
    }

    fn fail(&mut self, failure: CallFailure) -> End {
        let end = failure.end();
        if self.routing.shows(end) {
            self.shown = Some(failure);
            self.payload = None;
        }
        end
    }

    /// The result of a call that no URL answered.
    fn conclude(self) -> Result<(Payload, Origin), Unanswered> {
        let Self {
            choice,
            shown,
            payload,
            is_behind,
            ..
        } = self;
        let holds_back = choice.holds_back();
        let payload = match payload {
            Some(payload) if !is_behind && !holds_back => return Ok(payload),
            Some(payload) if !is_behind => Some(payload),
            _ => None,
        };
        let is_answered =
            payload.is_some() || matches!(shown, Some(CallFailure::Busy | CallFailure::After(_)));
        let error = if is_behind || (holds_back && !is_answered) {
            NodeError::Lagging
        } else {
            shown.map_or(NodeError::Unreachable, CallFailure::error)
        };
        Err(Unanswered {
            error,
            payload,
            is_behind,
            holds_back,
        })
    }
}

impl Unanswered {
    /// Whether the same call may be answered soon, and may be sent again.
    fn may_change<W: Fn(u64, &mut Vec<u8>)>(&self, call: &Call<'_, W>) -> bool {
        self.error == NodeError::Lagging || (self.holds_back && call.repeat() == Repeat::Safe)
    }
}

impl NodeClient {
    /// Creates a client of `node`, which has no connection yet. Answers take their memory from
    /// `memory`.
    pub fn new(config: &NodeConfig, node: &Arc<Node>, memory: Arc<MemoryPool>) -> Self {
        Self {
            node: Arc::clone(node),
            targets: Target::all(node, config),
            memory,
            timeout: config.timeout,
            next_id: AtomicU64::new(1),
        }
    }

    /// The state that this client shares with the other clients of the node.
    pub fn shared(&self) -> &Arc<Node> {
        &self.node
    }

    /// The status of the URLs over the connections of this client.
    pub fn status(&self) -> NodeStatus {
        NodeStatus {
            node: Arc::clone(&self.node),
            targets: Arc::clone(&self.targets),
        }
    }

    /// The probes of the URLs that this client calls.
    pub fn probes(&self) -> Probes {
        Probes {
            targets: Arc::clone(&self.targets),
            memory: Arc::clone(&self.memory),
            timeout: self.timeout,
        }
    }

    /// The time limit of one call.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Creates an answer that needs no call.
    pub fn answer_with(&self, result: String) -> Answer {
        Answer {
            member: RESULT,
            payload: result.into(),
            memory: Arc::new(MemoryPermit::of(&self.memory)),
            gzip: GzipForm::default(),
            node: None,
        }
    }

    /// Makes a call.
    ///
    /// # Errors
    /// Returns why there is no complete and verified answer by its deadline.
    pub fn fetch<'a>(
        &'a self,
        mut call: Call<'a, impl Fn(u64, &mut Vec<u8>) + Send + Sync + 'a>,
    ) -> impl Future<Output = Result<Answer, NodeError>> + Send + 'a {
        call.id = self.next_id.fetch_add(1, Ordering::Relaxed);
        // a block: an `async fn` would hold the call twice
        async move {
            if self.node.start.load().is_some() {
                return Err(NodeError::Starting);
            }
            let mut permit = MemoryPermit::for_client(&self.memory, call.share.take());
            let mut wait = FIRST_WAIT;
            let answered = loop {
                let answered = self.attempt(&call, &mut permit).await;
                if let Err(failed) = &answered
                    && failed.may_change(&call)
                {
                    let until = call.deadline.min(call.start + CATCH_UP);
                    // boxed, because few calls wait
                    if Box::pin(self.catch_up(call.route, failed, &mut wait, until)).await {
                        if failed.is_behind && call.connection == ConnectionChoice::Pooled {
                            call.connection = ConnectionChoice::New;
                        }
                        continue;
                    }
                }
                break answered.or_else(|failed| failed.payload.ok_or(failed.error));
            };
            let (error, end) = match &answered {
                Ok((_, origin)) => (None, origin.at),
                Err(error) => (Some(error.name()), Instant::now()),
            };
            self.node.metrics.node_call(error, end - call.start);
            let ((member, payload), origin) = answered?;
            let gzip = GzipForm::of(payload.len());
            Ok(Answer {
                member,
                payload,
                memory: Arc::new(permit),
                gzip,
                node: Some(origin.url),
            })
        }
    }

    /// Tries the URLs, in order, until one gives a valid answer. Returns the answer, and where it
    /// is from.
    pub(super) async fn attempt<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &Call<'_, W>,
        permit: &mut MemoryPermit,
    ) -> Result<(Payload, Origin), Unanswered> {
        let mut progress = Progress::new(self.choose(call), call.repeat());
        while let Some(index) = self.next_url(Turn::Next, call, &mut progress) {
            let ended = if progress.choice.has_alternatives() {
                // boxed: with a single URL, the future stays small
                Box::pin(self.hedge(call, index, &mut progress, permit)).await
            } else {
                let attempted = self.try_url(call, index, permit).await;
                self.settle(call, attempted, &mut progress)
            };
            match ended {
                Ok(answer) => return Ok(answer),
                Err(end) if progress.after(end) == Step::Stop => break,
                Err(_) => {}
            }
        }
        progress.conclude()
    }

    /// The URL to ask, if there is one.
    pub(super) fn next_url<W: Fn(u64, &mut Vec<u8>)>(
        &self,
        turn: Turn,
        call: &Call<'_, W>,
        progress: &mut Progress<'_>,
    ) -> Option<usize> {
        let Progress {
            choice, routing, ..
        } = progress;
        let order = choice.order(self.targets.len());
        routing.next(turn, order, |url| self.standing(choice, call, url))
    }

    /// Whether and when a URL gets this call.
    fn standing<W: Fn(u64, &mut Vec<u8>)>(
        &self,
        choice: &Choice<'_>,
        call: &Call<'_, W>,
        url: usize,
    ) -> Standing {
        match self.targets.get(url) {
            Some(_) => choice.standing(url, call.asked, call.repeat()),
            None => Standing::Excluded,
        }
    }

    /// Judges how an attempt ended. Returns the answer if it may be passed on.
    pub(super) fn settle<W: Fn(u64, &mut Vec<u8>)>(
        &self,
        call: &Call<'_, W>,
        attempted: Attempted,
        progress: &mut Progress<'_>,
    ) -> Result<(Payload, Origin), End> {
        let Some((result, index)) = attempted else {
            return Err(End::NotAsked);
        };
        match result {
            Ok(answered) => {
                let origin = Origin {
                    url: index,
                    connection: answered.connection(),
                    at: answered.at,
                };
                match self.accept(call, answered, origin, &progress.choice) {
                    Ok(payload) => Ok((payload, origin)),
                    Err(rejected) => Err(progress.reject(rejected, origin)),
                }
            }
            Err(failure) => Err(progress.fail(failure)),
        }
    }

    /// Attempts the call at one URL; `None` if its breaker is open.
    pub(super) async fn try_url<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &Call<'_, W>,
        index: usize,
        permit: &mut MemoryPermit,
    ) -> Attempted {
        let result = self.targets.get(index)?.attempt(call, permit).await?;
        Some((result, index))
    }

    /// Judges an answer. Returns its payload if it may be passed on.
    fn accept<W: Fn(u64, &mut Vec<u8>)>(
        &self,
        call: &Call<'_, W>,
        answered: Answered,
        origin: Origin,
        choice: &Choice<'_>,
    ) -> Result<Payload, Rejected> {
        let Some(target) = self.targets.get(origin.url) else {
            return Err(Rejected::Behind);
        };
        if choice.has_alternatives() && failure_class(&answered.payload).is_some() {
            return Err(Rejected::Error(target.keep(answered)));
        }
        if !choice.passes_on(origin, call.route, &answered.payload) {
            // dropped with its connection, which may lead to one node that is behind
            return Err(Rejected::Behind);
        }
        if choice.is_of_primary() {
            target.record.serves();
        }
        Ok(target.keep(answered))
    }

    fn choose<W>(&self, call: &Call<'_, W>) -> Choice<'_> {
        let busy = |index: usize| {
            let target = self.targets.get(index)?;
            target.breaker.failure().is_none().then(|| target.busy())
        };
        Choice::new(&self.node, call.route, call.id, busy)
    }
}
