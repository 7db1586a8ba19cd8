//! The driver: it performs what the pure steps ask for, as `edge/src/node` does.

use super::Bug;
use super::judge::{Judge, Sent};
use super::world::{Act, Mode, World};
use crate::toolkit::Chance;
use portcullis_filters::chain::{
    Asked, End, FailureClass, GroupState, NodeMode, NodeState, Observation, Repeat, Request,
    Routing, SLOW, ServedChain, Standing, Step, Turn,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// The time limit of a call.
const LIMIT: Duration = Duration::from_secs(8);

pub(super) struct Edge {
    node: NodeState,
    polled: Duration,
    bug: Bug,
    pub(super) judge: Judge,
}

/// The end of one attempt, and when it is over.
struct Attempt {
    end: End,
    at: Duration,
}

impl Edge {
    pub(super) fn new(world: &World, bug: Bug) -> Self {
        let urls = world.modes.len();
        Self {
            node: NodeState::new(
                ServedChain::new(urls, None, 0),
                GroupState::new(urls, NodeMode::Failover, 8),
            ),
            polled: Duration::ZERO,
            bug,
            judge: Judge::new(urls),
        }
    }

    /// Polls if it is time, and makes a read or a write.
    pub(super) fn step(&mut self, world: &World, chance: &mut Chance) {
        if world.now >= self.polled + SECOND {
            self.polled = world.now;
            (0..world.modes.len()).for_each(|url| self.poll(url, world, chance));
        }
        let repeat = chance.pick(&[Repeat::Safe, Repeat::Safe, Repeat::Safe, Repeat::Never]);
        self.call(repeat, world, chance);
        for url in 0..world.modes.len() {
            self.judge.health(url, self.node.fault(url), world);
        }
    }

    fn poll(&mut self, url: usize, world: &World, chance: &mut Chance) {
        let act = world.ask(url, false, chance);
        let sent = world.now;
        let class = match act {
            Act::Answer(latency) => {
                let asked = match self.bug {
                    Bug::PollsHealCalls => Asked::Call,
                    _ => Asked::Poll,
                };
                let request = Request { url, asked, sent };
                self.node
                    .observe(Observation::Answered(request), sent + latency);
                self.judge.valid(url, Asked::Poll, sent);
                return;
            }
            Act::Old => return,
            Act::Error(code) => FailureClass::of_error(code),
            Act::Fails(class) => Some(class),
            Act::Silence => Some(FailureClass::Timeout),
        };
        if let Some(class) = class.filter(|_| self.bug != Bug::PollsIgnored) {
            self.fail(url, Asked::Poll, class, sent, sent);
        }
    }

    fn fail(
        &mut self,
        url: usize,
        asked: Asked,
        class: FailureClass,
        sent: Duration,
        now: Duration,
    ) {
        let request = Request { url, asked, sent };
        self.node.observe(Observation::Failed(request, class), now);
    }

    /// The place of a URL; its chain is checked before its health.
    fn standing(&mut self, url: usize, repeat: Repeat, now: Duration, world: &World) -> Standing {
        if world.modes[url] == Mode::Foreign && self.bug != Bug::ForeignAsked {
            return Standing::Excluded;
        }
        let is_faulty = self.node.fault(url).is_some();
        match self.node.standing(url, None, Asked::Call, repeat, now) {
            _ if self.bug == Bug::NoTrial && is_faulty => Standing::LeftOut,
            Standing::LeftOut if self.bug == Bug::LeftOutIsExcluded => Standing::Excluded,
            standing => standing,
        }
    }

    fn call(&mut self, repeat: Repeat, world: &World, chance: &mut Chance) {
        let routed = match (self.bug, repeat) {
            (Bug::WriteRepeated, _) => Repeat::Safe,
            _ => repeat,
        };
        let urls = world.modes.len();
        let mut routing = Routing::new(routed);
        let mut call = Sent::new(repeat, world.now);
        let mut now = world.now;
        while now < world.now + LIMIT {
            let next = routing.next(Turn::Next, 0..urls, |url| {
                self.standing(url, repeat, now, world)
            });
            let Some(url) = next else { break };
            let Attempt { mut end, at } =
                self.attempt(url, routed, &mut routing, &mut call, now, world, chance);
            now = at;
            if self.bug == Bug::FailureStops && end == End::Failed {
                break;
            }
            if end == End::Answer && call.answered.is_none() {
                end = End::Failed;
            }
            match routing.after(end) {
                Step::Deliver => break,
                Step::Stop => {
                    call.answered = None;
                    break;
                }
                Step::Next => {}
            }
        }
        call.took = now - world.now;
        self.judge.call(&call, world);
    }

    /// Asks one URL, and a second one if the first is slow.
    #[expect(clippy::too_many_arguments, reason = "the state of one call")]
    fn attempt(
        &mut self,
        url: usize,
        repeat: Repeat,
        routing: &mut Routing,
        call: &mut Sent,
        now: Duration,
        world: &World,
        chance: &mut Chance,
    ) -> Attempt {
        let mut bound = Duration::ZERO;
        if repeat == Repeat::Safe {
            bound = self.node.begin_read(url);
            self.judge.earned += 1;
        }
        let act = world.ask(url, true, chance);
        call.urls.push(url);
        self.judge.asked(url, world);
        let over = match act {
            Act::Answer(latency) => now + latency,
            Act::Silence => now + LIMIT,
            _ => now,
        };
        if repeat == Repeat::Never || self.bug == Bug::HangWaits || over <= now + bound {
            return self.end(url, act, now, over, call);
        }
        let mut until = now + bound;
        if self.node.hedges.pay() || self.bug == Bug::HedgesAreFree {
            self.judge.paid += 1;
        } else {
            until = now + SLOW;
            if over <= until {
                return self.end(url, act, now, over, call);
            }
            self.fail(url, Asked::Call, FailureClass::Timeout, now, until);
        }
        let mut pending = vec![(url, act, now, over)];
        loop {
            let order = 0..world.modes.len();
            let mut at = until;
            let is_slow = at >= now + SLOW;
            let standing = |url| self.standing(url, Repeat::Safe, at, world);
            let mut next = routing.next(Turn::Second, order.clone(), standing);
            if next.is_none() && is_slow {
                next = routing.next(Turn::Next, order, |url| {
                    self.standing(url, Repeat::Safe, at, world)
                });
            }
            if let Some(next) = next {
                let act = world.ask(next, true, chance);
                call.urls.push(next);
                self.judge.asked(next, world);
                let over = match act {
                    Act::Answer(latency) => at + latency,
                    Act::Silence => now + LIMIT,
                    _ => at,
                };
                pending.push((next, act, at, over));
                at += SLOW;
            } else if is_slow {
                at = now + LIMIT;
            } else {
                at = now + SLOW;
            }
            pending.sort_by_key(|(.., over)| *over);
            until = at;
            if pending[0].3 <= at {
                let (url, act, sent, over) = pending.remove(0);
                let ended = self.end(url, act, sent, over, call);
                if ended.end == End::Answer || pending.is_empty() {
                    return ended;
                }
                until = over;
            }
        }
    }

    /// Records how a URL answered.
    fn end(
        &mut self,
        url: usize,
        act: Act,
        sent: Duration,
        over: Duration,
        call: &mut Sent,
    ) -> Attempt {
        let ended = |end| Attempt { end, at: over };
        let asked = Asked::Call;
        let answered = Observation::Answered(Request { url, asked, sent });
        let class = match act {
            Act::Answer(_) => {
                self.node.observe(answered, over);
                self.judge.valid(url, Asked::Call, over);
                call.answered = Some((url, act));
                return ended(End::Answer);
            }
            Act::Old => {
                self.node.observe(answered, over);
                self.judge.valid(url, Asked::Call, over);
                if self.bug != Bug::BehindIsAnswer {
                    return ended(End::Behind);
                }
                call.answered = Some((url, act));
                return ended(End::Answer);
            }
            Act::Error(_) if self.bug == Bug::ErrorIsAnswer => {
                call.answered = Some((url, act));
                return ended(End::Answer);
            }
            Act::Error(code) => FailureClass::of_error(code).expect("it is the server's"),
            Act::Fails(class) => class,
            Act::Silence => FailureClass::Timeout,
        };
        match self.bug {
            Bug::AnyAnswerHeals => {
                self.node.observe(answered, over);
            }
            Bug::CallsIgnored => {}
            _ => self.fail(url, asked, class, sent, over),
        }
        ended(match act {
            Act::Error(_) => End::Error,
            _ if class == FailureClass::Unreachable => End::Unreachable,
            _ => End::Failed,
        })
    }
}
