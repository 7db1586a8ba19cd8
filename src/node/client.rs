//! Sends each call to a URL of the node that may serve it. Tries the next URL if that one accepts
//! no connection, or if its answer is older than what clients have seen.

use super::answer::{Payload, RESULT};
use super::route::Choice;
use super::target::Target;
use super::{Answer, Call, CallFailure, Node, NodeError, NodeStatus, Probes};
use crate::config::NodeConfig;
use crate::io::gzip::GzipForm;
use crate::io::{MemoryPermit, MemoryPool};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    /// How long a call waits for a URL that is behind what clients have seen.
    patience: Duration,
}

/// No URL returned an answer that may be passed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswered {
    error: NodeError,
    /// Whether a URL returned an answer that is older than what clients have seen.
    pub(super) is_behind: bool,
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
            patience: CATCH_UP,
        }
    }

    /// Fails calls that would wait longer than this for a URL that is behind.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
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
                if let Err(
                    failed @ Unanswered {
                        error: NodeError::Lagging,
                        ..
                    },
                ) = answered
                {
                    let until = call.deadline.min(call.start + self.patience);
                    // boxed, because few calls wait
                    if Box::pin(self.catch_up(call.route, failed, &mut wait, until)).await {
                        continue;
                    }
                }
                break answered.map_err(|failed| failed.error);
            };
            let error = answered.as_ref().err().map(|error| error.name());
            self.node.metrics.node_call(error, call.start.elapsed());
            let ((member, payload), node) = answered?;
            let gzip = GzipForm::of(payload.len());
            Ok(Answer {
                member,
                payload,
                memory: Arc::new(permit),
                gzip,
                node: Some(node),
            })
        }
    }

    /// Tries the URLs that may serve, in order, until one accepts a connection. Returns the answer,
    /// and that URL's index.
    pub(super) async fn attempt<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &Call<'_, W>,
        permit: &mut MemoryPermit,
    ) -> Result<(Payload, usize), Unanswered> {
        let mut error = NodeError::Unreachable;
        let mut is_behind = false;
        let choice = self.choose(call);
        for index in choice.order(self.targets.len()) {
            let Some(target) = self.targets.get(index) else {
                continue;
            };
            if !choice.admits(index) {
                continue;
            }
            let Some(result) = target.attempt(call, permit).await else {
                continue;
            };
            match result {
                Ok(payload) if choice.passes_on(index, call.route, &payload) => {
                    if choice.is_of_primary() {
                        target.record.serves();
                    }
                    return Ok((payload, index));
                }
                // try the next URL: this answer is older than what clients have seen
                Ok(_) => is_behind = true,
                Err(failure @ (CallFailure::After(_) | CallFailure::Busy)) => {
                    return Err(Unanswered {
                        error: failure.error(),
                        is_behind: false,
                    });
                }
                // try the next URL
                Err(CallFailure::Connect) => {}
                Err(CallFailure::Foreign) if error != NodeError::Cut => {
                    error = NodeError::WrongChain;
                }
                Err(CallFailure::Foreign) => {}
                Err(CallFailure::Gone) => error = NodeError::Cut,
            }
        }
        let is_lagging = is_behind || choice.holds_back();
        Err(Unanswered {
            error: if is_lagging {
                NodeError::Lagging
            } else {
                error
            },
            is_behind,
        })
    }

    fn choose<W>(&self, call: &Call<'_, W>) -> Choice<'_> {
        let busy = |index: usize| {
            let target = self.targets.get(index)?;
            target.breaker.failure().is_none().then(|| target.busy())
        };
        Choice::new(&self.node.group, call.route, call.id, busy)
    }
}
