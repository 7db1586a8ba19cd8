//! The URLs of a node: each is right, or wrong in one way for a while.

use crate::toolkit::Chance;
use portcullis_filters::chain::FailureClass;
use std::time::Duration;

/// How a URL behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Right,
    /// It answers this status to everything.
    Status(u16),
    /// It answers calls and polls with this JSON-RPC error.
    Error(i64),
    /// It answers polls, and calls with this JSON-RPC error.
    ErrorOfCalls(i64),
    /// It answers something else.
    Garbage,
    /// It accepts connections and is silent.
    Hangs,
    /// It accepts no connection.
    Down,
    /// It answers from an old block.
    Frozen,
    /// It has another chain.
    Foreign,
}

/// All modes; the first is benign.
const MODES: [Mode; 16] = [
    Mode::Right,
    Mode::Status(502),
    Mode::Status(503),
    Mode::Status(401),
    Mode::Status(404),
    Mode::Status(301),
    Mode::Status(429),
    Mode::Error(-32_603),
    Mode::Error(-32_005),
    Mode::ErrorOfCalls(-32_603),
    Mode::ErrorOfCalls(-32_000),
    Mode::Garbage,
    Mode::Hangs,
    Mode::Down,
    Mode::Frozen,
    Mode::Foreign,
];

/// How a URL treats a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// A valid answer after this time.
    Answer(Duration),
    /// A valid answer that is older than what clients have seen.
    Old,
    /// A JSON-RPC error of this code.
    Error(i64),
    /// A failure of this class, at once.
    Fails(FailureClass),
    /// Nothing.
    Silence,
}

impl Mode {
    /// Whether it answers calls.
    pub(super) fn is_right(self) -> bool {
        self == Self::Right
    }

    /// Whether it gives no valid answers to calls.
    pub(super) fn fails(self) -> bool {
        !matches!(self, Self::Right | Self::Frozen | Self::Foreign)
    }

    fn act(self, is_call: bool, latency: Duration) -> Act {
        match self {
            Self::Right | Self::Foreign => Act::Answer(latency),
            Self::ErrorOfCalls(code) if is_call => Act::Error(code),
            Self::ErrorOfCalls(_) => Act::Answer(latency),
            Self::Frozen if is_call => Act::Old,
            Self::Frozen => Act::Answer(latency),
            Self::Error(code) => Act::Error(code),
            Self::Status(code) => Act::Fails(FailureClass::of_status(code)),
            Self::Garbage => Act::Fails(FailureClass::Invalid),
            Self::Down => Act::Fails(FailureClass::Unreachable),
            Self::Hangs => Act::Silence,
        }
    }
}

pub(super) struct World {
    pub(super) now: Duration,
    pub(super) modes: Vec<Mode>,
    /// Since when each URL has its mode.
    pub(super) since: Vec<Duration>,
}

impl World {
    pub(super) fn new(chance: &mut Chance) -> Self {
        let urls = 2 + chance.choose(3) as usize;
        Self {
            now: Duration::ZERO,
            modes: vec![Mode::Right; urls],
            since: vec![Duration::ZERO; urls],
        }
    }

    /// Lets time pass; now and then a URL changes.
    pub(super) fn change(&mut self, chance: &mut Chance) {
        self.now += Duration::from_millis(20 + u64::from(chance.choose(10)) * 20);
        let url = chance.choose(self.modes.len() as u32) as usize;
        let is_due = chance.choose(40) == 39;
        let fault = chance.pick(&MODES);
        let mode = chance.pick(&[Mode::Right, fault]);
        if is_due && self.modes[url] != mode {
            self.modes[url] = mode;
            self.since[url] = self.now;
        }
    }

    /// How a URL treats a call or a poll.
    pub(super) fn ask(&self, url: usize, is_call: bool, chance: &mut Chance) -> Act {
        let slow = chance.choose(8) == 7;
        let latency = if slow {
            Duration::from_millis(400)
        } else {
            Duration::from_millis(3)
        };
        self.modes[url].act(is_call, latency)
    }
}
