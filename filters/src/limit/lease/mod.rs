//! An instance's state of one client: its lease, and its unreported admissions.
//!
//! Times are arguments, read from a monotonic clock. Nothing here waits. A lease begins before its
//! message is sent and ends on that clock. Each message names the rest of the lease (`hold`), so
//! that the rest can be used while the message is under way. A use is reported until a message with
//! it is answered; the number of the first such message makes the store count it once.

use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt::Write as _;
use core::time::Duration;

/// Uses within this time are reported as one, at the time of the last: a request may count for this
/// much longer than the window.
const MERGED: Duration = Duration::from_millis(100);

/// Five seconds are a twelfth of the minute that a quota covers.
const FIVE_SECONDS: u32 = 12;

/// The terms of the leases of a surface.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The window of the quota.
    pub window: Duration,
    /// The length of the cells in which uses are counted: a use counts for up to one cell longer
    /// than the window.
    pub cell: Duration,
    /// How long a lease lasts.
    pub life: Duration,
    /// The most requests of a lease; [`Self::with_quota`] raises it to five seconds of a larger
    /// quota.
    pub want: u32,
}

impl Terms {
    /// The terms for a quota per minute. Sixteen requests are five seconds of the gateway's quota.
    pub const fn of_a_minute(life: Duration) -> Self {
        let (window, cell) = (Duration::from_secs(60), Duration::from_secs(1));
        Self {
            window,
            cell,
            life,
            want: 16,
        }
    }

    /// The terms for this quota: a larger quota makes leases larger, not more frequent.
    pub fn with_quota(self, quota: u32) -> Self {
        let want = if self.want > 1 {
            self.want.max(quota / FIVE_SECONDS)
        } else {
            self.want
        };
        Self { want, ..self }
    }
}

/// Requests that were admitted at about the same time.
#[derive(Clone, Copy, Debug)]
struct Use {
    first: Duration,
    last: Duration,
    count: u32,
    /// The number of the first message that reported them; 0 before.
    number: u64,
}

/// A client's lease at this instance.
#[derive(Debug, Default)]
pub struct Lease {
    /// Requests that the lease still permits, until `expires`.
    tokens: u32,
    /// Requests that the lease permitted when it was granted.
    granted: u32,
    expires: Option<Duration>,
    /// Requests that this instance may admit without the store, until the window of `answered_at`
    /// is over: its part of the remaining requests, and a lease that the store has forgotten.
    spare: u32,
    /// Requests that no instance held at the store's last answer.
    left: u32,
    answered_at: Option<Duration>,
    /// No request is left before this time.
    refused_until: Option<Duration>,
    uses: VecDeque<Use>,
    /// The number of the last message.
    number: u64,
    /// The number of the last message that was answered.
    acknowledged: u64,
    /// The store has forgotten the client: the next message reports a whole window.
    is_forgotten: bool,
    is_sending: bool,
}

/// The immediate answer of a lease to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The request is admitted.
    Admitted {
        /// Whether the caller should send a message for the requests that follow.
        renews: bool,
    },
    /// No request is left for this long.
    Refused(Duration),
    /// The store decides.
    Waits {
        /// Whether the caller sends the message; otherwise another caller has sent one.
        sends: bool,
    },
}

/// The decision of a lease on a request while the store is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// The request is admitted.
    Admitted,
    /// No request is left for this long.
    Refused(Duration),
    /// The last answer is older than the window: this instance's part of the quota applies.
    Part,
}

/// The contents of a message.
#[derive(Debug)]
pub struct Message {
    /// Its number; each is larger than the one before.
    pub number: u64,
    /// The number of the last answered message, which the store must know; 0 if the store may have
    /// dropped the record.
    pub acknowledged: u64,
    /// Requests that the lease still permits.
    pub hold: u32,
    /// The admissions, as the script reads them: `number:age:count;…`.
    pub uses: String,
    sent: Duration,
}

/// The store's answer.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// Requests that the lease permits, including those that were held.
    pub granted: u32,
    /// Requests that no instance holds.
    pub left: u32,
    /// How long until more may be left.
    pub retry: Duration,
}

impl Lease {
    /// Takes a request from the lease at `now`. The caller may have to send [`Lease::message`].
    pub fn take(&mut self, now: Duration, terms: &Terms) -> Step {
        let refused = self.refused_until.filter(|until| *until > now);
        if self.take_held(now, terms) {
            let is_low = self.tokens <= self.granted / 4 && terms.want > 1;
            return Step::Admitted {
                renews: is_low && refused.is_none() && self.claim(),
            };
        }
        match refused {
            Some(until) => Step::Refused(until.saturating_sub(now)),
            None => Step::Waits {
                sends: self.claim(),
            },
        }
    }

    /// Takes a request from the lease, if it still permits one.
    pub fn take_held(&mut self, now: Duration, terms: &Terms) -> bool {
        self.expire(now);
        debug_assert!(
            self.tokens <= self.granted,
            "a lease permits what was granted"
        );
        let Some(tokens) = self.tokens.checked_sub(1) else {
            return false;
        };
        self.tokens = tokens;
        self.record(now, terms);
        true
    }

    /// How many more requests pass, as far as known.
    pub fn remaining(&self) -> u32 {
        self.tokens
            .saturating_add(self.spare)
            .saturating_add(self.left)
    }

    /// The remaining requests; `None` if only the store knows.
    pub fn known_remaining(&self, now: Duration, terms: &Terms) -> Option<u32> {
        let is_fresh = self
            .answered_at
            .is_some_and(|at| at.saturating_add(terms.window) > now);
        let is_refused = self.refused_until.is_some_and(|until| until > now);
        (is_fresh && (self.remaining() > 0 || is_refused)).then(|| self.remaining())
    }

    /// Takes a request while the store is unavailable, from this instance's part of the remaining
    /// requests, which `instances` share.
    pub fn take_spare(&mut self, now: Duration, terms: &Terms, instances: u32) -> Alone {
        let Some(over) = self
            .answered_at
            .map(|at| at.saturating_add(terms.window))
            .filter(|at| *at > now)
        else {
            self.spare = 0;
            return Alone::Part;
        };
        let left = core::mem::take(&mut self.left);
        self.spare = self
            .spare
            .saturating_add(left.checked_div(instances).unwrap_or(left));
        let Some(spare) = self.spare.checked_sub(1) else {
            return Alone::Refused(over.saturating_sub(now));
        };
        self.spare = spare;
        self.record(now, terms);
        Alone::Admitted
    }

    /// Records an admitted request.
    pub fn record(&mut self, now: Duration, terms: &Terms) {
        let over = terms.window.saturating_add(terms.cell);
        while self
            .uses
            .front()
            .is_some_and(|oldest| oldest.last.saturating_add(over) <= now)
        {
            self.uses.pop_front();
        }
        match self.uses.back_mut() {
            Some(last) if last.number == 0 && now < last.first.saturating_add(MERGED) => {
                (last.last, last.count) = (now, last.count.saturating_add(1));
            }
            _ => self.uses.push_back(Use {
                first: now,
                last: now,
                count: 1,
                number: 0,
            }),
        }
    }

    /// Whether there are admissions that the store may not know.
    pub fn has_unreported(&self) -> bool {
        !self.uses.is_empty()
    }

    /// Claims the turn to send a message until [`Lease::release`]; `false` while one is under way.
    pub fn claim(&mut self) -> bool {
        !core::mem::replace(&mut self.is_sending, true)
    }

    /// The message to send at `now`. `recent` counts what this instance admitted in the last
    /// window: that is reported if the store has forgotten the client.
    pub fn message(
        &mut self,
        now: Duration,
        terms: &Terms,
        recent: impl FnOnce() -> u32,
    ) -> Message {
        self.expire(now);
        self.number = self.number.saturating_add(1);
        if core::mem::take(&mut self.is_forgotten) {
            // dated now: each counts for longer than it should, never for less
            let known: u32 = self.uses.iter().map(|used| used.count).sum();
            let count = recent().max(known);
            self.uses.clear();
            self.uses.push_back(Use {
                first: now,
                last: now,
                count,
                number: 0,
            });
            self.acknowledged = 0;
        }
        let mut uses = String::new();
        for used in self.uses.iter_mut().filter(|used| used.count > 0) {
            if used.number == 0 {
                used.number = self.number;
            }
            let age = now.saturating_sub(used.last).as_millis();
            // writing to a String does not fail
            let _ = write!(uses, "{}:{age}:{};", used.number, used.count);
        }
        // the store has a record for one window; one cell less is certain
        let is_stored = self
            .answered_at
            .is_some_and(|at| at.saturating_add(terms.window) > now.saturating_add(terms.cell));
        let acknowledged = if is_stored { self.acknowledged } else { 0 };
        Message {
            number: self.number,
            acknowledged,
            hold: self.tokens,
            uses,
            sent: now,
        }
    }

    /// Applies the answer to a message.
    pub fn answer(&mut self, message: &Message, answer: Granted, now: Duration, life: Duration) {
        debug_assert!(message.number <= self.number, "the message was sent");
        let used = message.hold.saturating_sub(self.tokens);
        self.uses
            .retain(|used| used.number == 0 || used.number > message.number);
        self.acknowledged = message.number;
        (self.tokens, self.granted) = (answer.granted.saturating_sub(used), answer.granted);
        self.expires = Some(message.sent.saturating_add(life));
        (self.left, self.spare) = (answer.left, 0);
        self.answered_at = Some(now);
        self.refused_until = (answer.left == 0).then(|| now.saturating_add(answer.retry));
    }

    /// Marks the client's record as lost by the store: its grants need another answer. Without one,
    /// the earlier remainder applies, which was counted with everything that the store has lost.
    pub fn forgotten(&mut self, now: Duration) {
        self.expire(now);
        self.is_forgotten = true;
        self.spare = self.spare.saturating_add(core::mem::take(&mut self.tokens));
    }

    /// Ends the turn to send a message. The store may have received one that got no answer, so held
    /// requests stay held.
    pub fn release(&mut self) {
        self.is_sending = false;
    }

    fn expire(&mut self, now: Duration) {
        if self.expires.is_some_and(|expires| expires <= now) {
            (self.tokens, self.expires) = (0, None);
        }
    }
}

#[cfg(test)]
mod tests;
