//! Drawn histories: three users and their sessions, events that arrive late, twice, in any order or
//! with the id of another, pruning, forgetting, and clocks that step.

use super::model::Command;
use crate::age::{event, reference};
use crate::toolkit::Chance;
use crate::wire::Cut;
use crate::world::NOW;
use portcullis_filters::webhook::{AgeStatus, SignedEvent};

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
/// No session has this number.
const UNKNOWN: u64 = 1_000_000;

/// How commands are performed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mode {
    /// The first alone, by one of two processes.
    Alone(usize),
    /// Both at once, each by its process.
    Together,
    /// The first alone, by a process that loses the database meanwhile.
    Cut(usize, Cut),
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) mode: Mode,
    pub(crate) commands: Vec<Command>,
}

/// The state from which the next step is drawn.
pub(crate) struct History {
    users: u32,
    /// How the clock moves from one command to the next.
    steps: [i64; 7],
    /// Whether anything is pruned or forgotten.
    erases: bool,
    elapsed_us: i64,
    opened: u64,
    sent: Vec<SignedEvent>,
}

impl History {
    /// Histories differ in what is frequent: one in which every row is soon erased meets no limit.
    pub(crate) fn new(chance: &mut Chance) -> Self {
        let users = 1 + chance.choose(3);
        let slow = [0, 0, 0, SECOND, SECOND, 5 * SECOND, 20 * SECOND];
        let fast = [
            0,
            SECOND,
            SECOND,
            20 * SECOND,
            90 * SECOND,
            600 * SECOND,
            HOUR,
        ];
        let steps = chance.pick(&[slow, fast]);
        let erases = chance.pick(&[false, true, true]);
        Self {
            users,
            steps,
            erases,
            elapsed_us: 0,
            opened: 0,
            sent: Vec::new(),
        }
    }

    /// Always the same number of choices.
    pub(crate) fn step(&mut self, chance: &mut Chance) -> Step {
        let store = chance.choose(2) as usize;
        let cut = Mode::Cut(store, Cut::draw(chance));
        let alone = Mode::Alone(store);
        let mode = chance.pick(&[alone, alone, Mode::Together, cut]);
        let mut commands = vec![self.command(chance, true)];
        let is_second = matches!(mode, Mode::Together);
        let second = self.command(chance, is_second);
        commands.extend(is_second.then_some(second));
        Step { mode, commands }
    }

    /// Draws a command, and remembers what it does unless it is not performed.
    fn command(&mut self, chance: &mut Chance, is_performed: bool) -> Command {
        let step = chance.pick(&self.steps);
        let is_back = chance.choose(8) == 7;
        let user = format!("u{}", chance.choose(self.users));
        let kind = chance.choose(24);
        let drawn = Drawn::draw(chance);
        let ago = chance.pick(&[HOUR, 600 * SECOND, 0]);
        if !is_performed {
            return Command::Forget { user };
        }
        self.elapsed_us += if is_back { -step } else { step };
        let now_us = NOW + self.elapsed_us;
        match kind {
            0 => Command::Show { user, now_us },
            1..=8 => {
                self.opened += 1;
                let subject = reference(self.opened - 1);
                Command::Open {
                    user,
                    subject,
                    now_us,
                    expires_us: now_us + ago + SECOND,
                }
            }
            20 if self.erases => Command::PruneSessions {
                before_us: now_us - ago,
            },
            21 if self.erases => Command::PruneEvents {
                before_us: now_us - ago,
            },
            22 if self.erases => Command::Forget { user },
            _ => {
                let event = self.event(drawn);
                self.sent.push(event.clone());
                Command::Record {
                    event,
                    received_us: now_us,
                }
            }
        }
    }

    fn event(&self, drawn: Drawn) -> SignedEvent {
        let Drawn {
            delivery,
            subject,
            former,
            status,
            second,
        } = drawn;
        let subject = self.opened.checked_sub(1 + subject).unwrap_or(UNKNOWN);
        match (delivery, self.sent.iter().rev().nth(former)) {
            (Delivery::Again, Some(former)) => former.clone(),
            (Delivery::OtherContent, Some(former)) => {
                event(former.event_id(), subject, status, second)
            }
            _ => event(&format!("e{}", self.sent.len()), subject, status, second),
        }
    }
}

#[derive(Clone, Copy)]
enum Delivery {
    First,
    /// A former event once more.
    Again,
    /// With the id of a former event.
    OtherContent,
}

/// The choices of an event.
struct Drawn {
    delivery: Delivery,
    /// How many sessions were opened since its own.
    subject: u64,
    /// How many events were sent since the former one.
    former: usize,
    status: AgeStatus,
    second: u32,
}

impl Drawn {
    fn draw(chance: &mut Chance) -> Self {
        use Delivery::{Again, First, OtherContent};
        Self {
            delivery: chance.pick(&[First, First, First, Again, OtherContent]),
            subject: u64::from(chance.choose(5)),
            former: chance.choose(6) as usize,
            status: chance.pick(&AgeStatus::ALL),
            second: chance.choose(12),
        }
    }
}
