//! Detects that many requests of a surface fail although no other condition explains it, so that an
//! outage without a known cause has an event, too.
//!
//! Counts once per [`WINDOW`]. A single bad window may be a restart of the node; two in a row are
//! reported, until one is good.

use portcullis_base::telemetry::{ActiveCondition, Condition, Finding, Requests, Surface};
use portcullis_edge::node::UrlFailure;
use portcullis_filters::verdict::{Reason, Refusal};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long requests are counted.
pub(super) const WINDOW: Duration = Duration::from_secs(5);
/// Bad windows in a row after which they are reported.
const LASTING: u32 = 2;
/// Fewer failures in a window are ignored as single requests.
const FEW: u64 = 5;
/// One failure in this many requests is too many.
const TOLERATED: u64 = 20;

/// The requests of one surface.
#[derive(Default)]
pub(super) struct Failures {
    answered: u64,
    failed: BTreeMap<&'static str, u64>,
    /// Bad windows in a row.
    bad: u32,
}

impl Failures {
    /// Ends a window and returns what is wrong, if it lasts. A condition in `present` may explain
    /// it; `cause_of` returns why requests fail for a reason.
    pub(super) fn end_window(
        &mut self,
        surface: Surface,
        requests: &Requests,
        present: &[ActiveCondition],
        cause_of: impl FnOnce(&str) -> Option<String>,
    ) -> Option<Finding> {
        let counted = requests
            .unanswered()
            .filter(|(reason, _)| is_fault(*reason));
        let now: BTreeMap<_, _> = counted
            .map(|(reason, count)| (reason.name(), count))
            .collect();
        let before = std::mem::replace(&mut self.failed, now);
        let new = |(reason, count): (&&'static str, &u64)| {
            (
                count - before.get(reason).copied().unwrap_or_default(),
                *reason,
            )
        };
        let (most, reason) = self.failed.iter().map(new).max()?;
        let failed: u64 = self.failed.iter().map(new).map(|(count, _)| count).sum();
        let answered = requests.answered();
        let all = failed + answered - std::mem::replace(&mut self.answered, answered);
        let is_explained = present
            .iter()
            .any(|active| active.finding.is_failing && active.condition != Condition::Requests);
        let is_bad = failed >= FEW && failed * TOLERATED >= all;
        let is_new = self.bad < LASTING;
        self.bad = if is_bad && !(is_explained && is_new) {
            self.bad + 1
        } else {
            0
        };
        (self.bad >= LASTING).then(|| {
            let mut cause = format!("{failed} of {all} within {WINDOW:?}, {most} of them {reason}");
            if let Some(why) = cause_of(reason) {
                cause += &format!(" ({why})");
            }
            Finding {
                subject: surface.name().to_owned(),
                cause,
                is_failing: failed * 2 >= all,
                needs_node: false,
            }
        })
    }
}

/// Why requests fail for this reason: the newest failure at a node URL that has this reason. If the
/// node is unreachable, a failure that stopped the calls to its URL counts, too.
pub(super) fn node_cause<'a>(reason: &str, failures: &'a [UrlFailure]) -> Option<&'a str> {
    let belongs = |failure: &&UrlFailure| {
        let own = Refusal::from(failure.error).reason;
        let of_stopped = failure.stops_calls.then_some(Reason::UpstreamUnreachable);
        [Some(own), of_stopped]
            .into_iter()
            .flatten()
            .any(|of| of.name() == reason)
    };
    let newest = failures
        .iter()
        .filter(belongs)
        .max_by_key(|failure| failure.at)?;
    Some(&newest.cause)
}

/// Whether this is a failure, and not part of a shutdown.
fn is_fault(reason: Reason) -> bool {
    reason.is_failure() && reason != Reason::Draining
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_edge::node::NodeError;
    use tokio::time::Instant;

    #[test]
    fn a_reason_has_a_cause_of_its_kind() {
        let start = Instant::now();
        let failure = |(error, cause, after, stops_calls): (_, &str, _, _)| UrlFailure {
            error,
            cause: cause.to_owned(),
            at: start + Duration::from_secs(after),
            stops_calls,
        };
        let refused = (NodeError::Unreachable, "connection refused", 1, true);
        let broken = (NodeError::Status, "500 Internal Server Error", 2, false);
        let slow = (NodeError::Timeout, "no answer in time", 3, true);
        let cut = (
            NodeError::Cut,
            "the connection ended before the answer",
            4,
            false,
        );
        let busy = (NodeError::Status, "503 Service Unavailable", 5, true);
        for (reason, failures, expected) in [
            (
                Reason::UpstreamUnreachable,
                vec![refused, broken],
                Some(refused.1),
            ),
            (
                Reason::UpstreamStatus,
                vec![refused, broken],
                Some(broken.1),
            ),
            (Reason::UpstreamUnreachable, vec![broken], None),
            (Reason::UpstreamUnreachable, vec![refused, cut], Some(cut.1)),
            (
                Reason::UpstreamTimeout,
                vec![refused, slow, cut],
                Some(slow.1),
            ),
            // a URL that hung gets no calls
            (
                Reason::UpstreamUnreachable,
                vec![broken, slow],
                Some(slow.1),
            ),
            (Reason::UpstreamUnreachable, vec![slow, busy], Some(busy.1)),
            (
                Reason::UpstreamInvalid,
                vec![refused, broken, slow, cut, busy],
                None,
            ),
            (Reason::UpstreamTimeout, vec![], None),
        ] {
            let failures: Vec<_> = failures.into_iter().map(failure).collect();
            assert_eq!(
                node_cause(reason.name(), &failures),
                expected,
                "{reason:?} {failures:?}"
            );
        }
    }
}
