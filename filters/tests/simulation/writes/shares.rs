//! The shares of an account's lock: a relay hands it to another one that waits after some writes or
//! some time, and waits long for another one only once.

use super::machine::Process;
use super::world::World;
use portcullis_filters::felt::Felt;
use std::time::Duration;

/// The most writes of a share, and its longest time.
const WRITES: u32 = 8;
const TIME: Duration = Duration::from_secs(2);
/// How long a relay waits for another one, and after it waited in vain.
const WAIT: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(500);

/// The share of the relay that had an account last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    since: Duration,
    writes: u32,
}

impl Share {
    /// A relay gets the account, which another one had before or not.
    pub(super) fn granted(&mut self, relay: Process, last: Option<Process>, now: Duration) {
        if last != Some(relay) {
            self.since = now;
            self.writes = 0;
        }
        self.writes += 1;
    }
}

impl World {
    /// A relay keeps an account for its next write.
    pub(super) fn judge_kept(&mut self, of: Felt) {
        let now = self.now();
        let Share { since, writes, .. } = self.locks.entry(of).or_default().share;
        if writes >= WRITES || now >= since + TIME {
            let broken = format!(
                "locks: a relay keeps an account after {writes} writes and {:?}",
                now - since
            );
            self.oracle.report(Err(broken));
        }
    }

    /// A relay waits for an account for at most so long while another one has it, until a deadline
    /// that is so far.
    pub(super) fn judge_patience(
        &mut self,
        relay: Process,
        of: Felt,
        patience: Duration,
        left: Duration,
    ) {
        let is_in_vain = self.oracle.notes.in_vain.contains(&(relay, of));
        let expected = if is_in_vain { RETRY } else { WAIT };
        if patience != expected.min(left) {
            let broken = format!("locks: relay {relay} waits {patience:?} for another one");
            self.oracle.report(Err(broken));
        }
    }
}
