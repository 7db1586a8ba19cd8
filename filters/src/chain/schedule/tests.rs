//! Turns of one instance in virtual time, with every answer that its fleet can give.

use super::super::continuity::{ChainStatus, PurgeCause};
use super::*;

/// Milliseconds; a lease takes three intervals, and a quarter of one is a second.
const INTERVAL: u64 = 4_000;
/// The newest epoch that the fleet has seen.
const EPOCH: u64 = 7;

const SEEN: Step = Step {
    broke: None,
    generation: 1,
    chain: Some(ChainStatus {
        position: None,
        settled: None,
        l1: None,
    }),
};
const BROKEN: Step = Step {
    broke: Some(PurgeCause::Rollback),
    ..SEEN
};
const BLIND: Step = Step {
    broke: Some(PurgeCause::Unreachable),
    chain: None,
    ..SEEN
};

/// An instance in virtual time.
struct Instance {
    schedule: Schedule,
    /// Milliseconds since the start.
    now: u64,
    fleet: Membership,
    instances: u32,
}

impl Instance {
    fn new(fleet: Membership) -> Self {
        Self::polling(INTERVAL, fleet)
    }

    fn polling(interval: u64, fleet: Membership) -> Self {
        let now = 100_000;
        let schedule = Schedule::new(millis(interval), millis(now));
        Self {
            schedule,
            now,
            fleet,
            instances: 1,
        }
    }

    fn at(&self, time: u64) -> Duration {
        millis(time)
    }

    fn step(&mut self, event: Event) -> (Vec<Effect>, Task) {
        let facts = Facts {
            now: self.at(self.now),
            fleet: self.fleet,
            instances: self.instances,
        };
        self.schedule.step(event, facts)
    }

    fn due(&mut self) -> (Vec<Effect>, Task) {
        self.step(Event::Due)
    }

    fn observation(&self, step: Step) -> Observation {
        Observation {
            step,
            polled: self.at(self.now),
        }
    }

    /// Begins a turn with a poll, which takes `took` milliseconds and shows `step`.
    fn polls(&mut self, took: u64, step: Step) -> (Vec<Effect>, Task) {
        assert_eq!(self.due().1, Task::Poll);
        self.now += took;
        self.step(Event::Polled(Some(self.observation(step))))
    }

    /// Plays a turn of the leader: a poll of 500 ms and, 100 ms later, this answer of the store.
    fn leads(&mut self, fleet: Membership, published: Option<Published>) -> (Vec<Effect>, Task) {
        let observed = self.polls(500, SEEN);
        let observation = self.observation(SEEN);
        assert_eq!(observed, (vec![], Task::Publish(observation)));
        self.now += 100;
        self.fleet = fleet;
        self.step(Event::Published(observation, published))
    }

    /// Plays a turn of a follower, which reads this from the store.
    fn follows(&mut self, published: Option<Published>) -> (Vec<Effect>, Task) {
        assert!(matches!(self.due(), (effects, Task::Follow(_)) if effects.is_empty()));
        self.step(Event::Followed(published))
    }

    /// A state that was polled `age` milliseconds ago.
    fn state(&self, age: u64) -> Published {
        let state = Some((ChainState::default().to_text(), self.at(self.now - age)));
        Published { state, ..nothing() }
    }

    fn wait(&self, until: u64) -> Task {
        Task::Wait(self.at(until))
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn nothing() -> Published {
    Published {
        leads: false,
        is_elected: false,
        state: None,
        epoch: EPOCH,
    }
}

fn elected(published: Published) -> Published {
    Published {
        leads: true,
        is_elected: true,
        ..published
    }
}

fn inherit(until: Option<Duration>) -> Effect {
    Effect::Inherit(ChainState::default(), until)
}

fn enter(mode: Mode, age: u64) -> Effect {
    Effect::Enter(mode, millis(age))
}

#[test]
fn a_turn_begins_as_the_fleet_allows() {
    for (fleet, effects, task) in [
        (Membership::None, vec![], Some(Task::Poll)),
        (Membership::Connecting, vec![], None),
        (
            Membership::Unavailable,
            vec![enter(Mode::Detached, 0)],
            Some(Task::Poll),
        ),
        (
            Membership::Member,
            vec![],
            Some(Task::Follow(Some(millis(INTERVAL)))),
        ),
        (Membership::Leader, vec![], Some(Task::Poll)),
    ] {
        let mut one = Instance::new(fleet);
        let task = task.unwrap_or(one.wait(one.now + 50));
        assert_eq!(one.due(), (effects, task), "{fleet:?}");
    }
}

#[test]
fn a_connecting_instance_keeps_its_mode() {
    let mut one = Instance::new(Membership::Member);
    one.follows(Some(one.state(0)));
    one.fleet = Membership::Connecting;
    one.due();
    assert_eq!(one.schedule.mode(), Mode::Following);
}

#[test]
fn without_a_fleet_each_interval_has_a_poll() {
    let mut one = Instance::new(Membership::None);
    one.instances = 3;
    for (took, step) in [(0, SEEN), (300, BROKEN), (3_900, BLIND), (4_100, BLIND)] {
        let next = one.now + INTERVAL;
        let expected = (vec![Effect::Apply(step, None)], one.wait(next));
        assert_eq!(one.polls(took, step), expected, "{took} ms");
        one.now = next.max(one.now);
    }
}

#[test]
fn a_poll_that_proves_nothing_pauses_the_cache() {
    for (fleet, then, entered) in [
        (Membership::None, Membership::None, None),
        (Membership::Unavailable, Membership::Unavailable, None),
        (Membership::Leader, Membership::Leader, Some(Mode::Leading)),
        // its lease ended meanwhile
        (
            Membership::Leader,
            Membership::Member,
            Some(Mode::Following),
        ),
        (
            Membership::Leader,
            Membership::Unavailable,
            Some(Mode::Following),
        ),
    ] {
        let mut one = Instance::new(fleet);
        let next = one.wait(one.now + INTERVAL);
        assert_eq!(one.due().1, Task::Poll);
        one.now += 300;
        one.fleet = then;
        let mut effects = vec![Effect::Pause];
        effects.extend(entered.map(|mode| enter(mode, 300)));
        assert_eq!(
            one.step(Event::Polled(None)),
            (effects, next),
            "{fleet:?}, {then:?}"
        );
    }
}

#[test]
fn a_node_that_answers_again_is_reported_once() {
    let mut one = Instance::new(Membership::None);
    for (step, is_reported) in [
        (SEEN, false),
        (BLIND, false),
        (BLIND, false),
        (SEEN, true),
        (BROKEN, false),
    ] {
        let (effects, _) = one.polls(0, step);
        assert_eq!(
            effects.contains(&Effect::Reachable),
            is_reported,
            "{effects:?}"
        );
        assert_eq!(
            effects.last(),
            Some(&Effect::Apply(step, None)),
            "after the report"
        );
    }
}

#[test]
fn a_leader_applies_a_poll_once_published() {
    let mut one = Instance::new(Membership::Leader);
    let start = one.now;
    let renewed = Published {
        is_elected: false,
        ..elected(nothing())
    };
    let until = one.at(start + 500 + 2 * INTERVAL);
    let effects = vec![
        Effect::Apply(SEEN, Some(until)),
        Effect::Renewed(EPOCH),
        enter(Mode::Leading, 100),
    ];
    let next = one.wait(start + INTERVAL);
    assert_eq!(
        one.leads(Membership::Leader, Some(renewed)),
        (effects, next)
    );
}

#[test]
fn a_break_pauses_the_cache_until_published() {
    let mut one = Instance::new(Membership::Leader);
    let (effects, task) = one.polls(0, BROKEN);
    assert_eq!(
        (effects, task),
        (vec![Effect::Pause], Task::Publish(one.observation(BROKEN)))
    );
}

#[test]
fn a_blind_leader_resigns_and_is_no_candidate() {
    let mut one = Instance::new(Membership::Leader);
    let start = one.now;
    assert_eq!(one.polls(300, BLIND), (vec![Effect::Pause], Task::Resign));
    for (fleet, mode, why) in [
        (Membership::Member, Mode::Following, "it resigned"),
        (
            Membership::Unavailable,
            Mode::Following,
            "the store is gone",
        ),
        (
            Membership::Leader,
            Mode::Leading,
            "it was elected meanwhile",
        ),
    ] {
        one.fleet = fleet;
        let expected = (vec![enter(mode, 300)], one.wait(start + INTERVAL / 4));
        assert_eq!(one.step(Event::Resigned), expected, "{why}");
    }
    one.fleet = Membership::Member;
    assert_eq!(one.due().1, Task::Follow(None));
    one.fleet = Membership::Leader;
    one.polls(0, SEEN);
    one.fleet = Membership::Member;
    assert_eq!(
        one.due().1,
        Task::Follow(Some(millis(INTERVAL))),
        "it reaches the node again"
    );
}

#[test]
fn a_leader_that_loses_the_store_is_detached() {
    for (interval, next) in [
        (INTERVAL, Some(INTERVAL)),
        (1_000, Some(1_000)),
        (600, None),
    ] {
        let mut one = Instance::polling(interval, Membership::Leader);
        let start = one.now;
        let until = one.at(start + 500 + 2 * interval);
        let effects = vec![Effect::Apply(SEEN, Some(until)), enter(Mode::Detached, 600)];
        // it also polls for itself, but only if that is due again
        let task = next.map_or(Task::Poll, |next| one.wait(start + next));
        assert_eq!(
            one.leads(Membership::Unavailable, None),
            (effects, task),
            "{interval} ms"
        );
    }
}

#[test]
fn a_replaced_leader_applies_what_was_published() {
    let mut one = Instance::new(Membership::Leader);
    let heard = Published {
        epoch: 9,
        ..one.state(400)
    };
    let polled = one.now - 400;
    let effects = vec![
        inherit(Some(one.at(polled + 2 * INTERVAL))),
        enter(Mode::Following, 1_000),
    ];
    let next = one.wait(polled + INTERVAL + INTERVAL / 4);
    assert_eq!(one.leads(Membership::Member, Some(heard)), (effects, next));
}

#[test]
fn a_replaced_leader_without_a_state_follows_at_once() {
    let mut one = Instance::new(Membership::Leader);
    one.now += 20_000;
    let start = one.now;
    let expected = (vec![enter(Mode::Following, 20_600)], one.wait(start));
    assert_eq!(one.leads(Membership::Member, Some(nothing())), expected);
}

#[test]
fn an_instance_elected_at_publication_polls_again() {
    for (age, is_fresh) in [(400, true), (9_000, false)] {
        let mut one = Instance::new(Membership::Leader);
        let polled = one.now - age;
        let until = is_fresh.then(|| one.at(polled + 2 * INTERVAL));
        let entered = enter(Mode::Leading, if is_fresh { age + 600 } else { 600 });
        let effects = vec![inherit(until), Effect::Elected(EPOCH), entered];
        let next = one.wait(one.now + 600);
        let heard = elected(one.state(age));
        assert_eq!(
            one.leads(Membership::Leader, Some(heard)),
            (effects, next),
            "{age} ms"
        );
        assert_eq!(one.due(), (vec![], Task::Poll), "it verifies that state");
    }
}

#[test]
fn an_elected_follower_polls_at_once() {
    let mut one = Instance::new(Membership::Member);
    assert_eq!(one.due().1, Task::Follow(Some(millis(INTERVAL))));
    one.fleet = Membership::Leader;
    let expected = (
        vec![Effect::Elected(EPOCH), enter(Mode::Leading, 0)],
        one.wait(one.now),
    );
    assert_eq!(
        one.step(Event::Followed(Some(elected(nothing())))),
        expected
    );
    assert_eq!(one.due(), (vec![], Task::Poll));
}

#[test]
fn a_published_state_is_fresh_for_two_intervals() {
    for (age, is_fresh) in [
        (0, true),
        (4_000, true),
        (7_999, true),
        (8_000, false),
        (20_000, false),
    ] {
        let mut one = Instance::new(Membership::Member);
        let until = is_fresh.then(|| one.at(one.now - age + 2 * INTERVAL));
        let entered = enter(Mode::Following, if is_fresh { age } else { 0 });
        let (effects, _) = one.follows(Some(one.state(age)));
        assert_eq!(effects, [inherit(until), entered], "{age} ms");
    }
}

#[test]
fn a_follower_waits_for_the_next_publication() {
    for (age, wait, why) in [
        (
            Some(0),
            5_000,
            "an interval and a quarter after it was polled",
        ),
        (Some(3_000), 2_000, "likewise"),
        (Some(4_500), 1_000, "a quarter, as it is late"),
        (Some(8_000), 1_000, "a quarter, as it is not fresh"),
        (None, 1_000, "a quarter, without a state"),
    ] {
        let mut one = Instance::new(Membership::Member);
        let heard = age.map_or_else(nothing, |age| one.state(age));
        assert_eq!(
            one.follows(Some(heard)).1,
            one.wait(one.now + wait),
            "{age:?}: {why}"
        );
    }
}

#[test]
fn a_follower_is_patient_for_lease_and_interval() {
    for (interval, patience) in [(200, 3_200), (1_000, 4_000), (INTERVAL, 16_000)] {
        let mut one = Instance::polling(interval, Membership::Member);
        one.follows(Some(one.state(0)));
        let polled = one.now;
        one.now = polled + patience - 1;
        let expected = (
            vec![enter(Mode::Following, patience - 1)],
            one.wait(one.now + interval / 4),
        );
        assert_eq!(one.follows(Some(nothing())), expected, "{interval} ms");
        one.now = polled + patience;
        let expected = (vec![enter(Mode::Detached, patience)], Task::Poll);
        assert_eq!(one.follows(Some(nothing())), expected, "{interval} ms");
    }
}

#[test]
fn a_blind_follower_needs_a_fresh_state() {
    for (age, mode) in [(7_999, Mode::Following), (8_000, Mode::Detached)] {
        let mut one = Instance::new(Membership::Unavailable);
        one.polls(0, BLIND);
        one.fleet = Membership::Member;
        one.follows(Some(one.state(age)));
        assert_eq!(one.schedule.mode(), mode, "{age} ms");
    }
}

#[test]
fn a_follower_without_the_store_is_detached() {
    let mut one = Instance::new(Membership::Member);
    one.follows(Some(one.state(0)));
    one.now += 1_000;
    assert_eq!(
        one.follows(None),
        (vec![enter(Mode::Detached, 1_000)], Task::Poll)
    );
}

#[test]
fn a_state_of_another_version_is_none() {
    let mut one = Instance::new(Membership::Member);
    let heard = Published {
        state: Some(("{}".to_owned(), one.at(one.now))),
        ..nothing()
    };
    let expected = (
        vec![enter(Mode::Following, 0)],
        one.wait(one.now + INTERVAL / 4),
    );
    assert_eq!(one.follows(Some(heard)), expected);
}

#[test]
fn a_detached_poll_holds_for_two_intervals() {
    for step in [SEEN, BROKEN, BLIND] {
        let mut one = Instance::new(Membership::Unavailable);
        one.instances = 3;
        let start = one.now;
        let apply = Effect::Apply(step, Some(one.at(start + 500 + 2 * INTERVAL)));
        let expected = (vec![apply], one.wait(start + INTERVAL));
        assert_eq!(one.polls(500, step), expected, "{step:?}");
    }
}

#[test]
fn detached_instances_poll_like_one_leader() {
    for (interval, instances, period) in [
        (INTERVAL, 1, INTERVAL),
        (INTERVAL, 3, 3 * INTERVAL),
        (200, 10, 2_000),
        // but none polls more than once a second
        (200, 3, 1_000),
        (300, 1, 1_000),
    ] {
        let mut one = Instance::polling(interval, Membership::Unavailable);
        one.instances = instances;
        let start = one.now;
        one.polls(0, SEEN);
        loop {
            // it checks for a leader in each interval
            one.now = (one.now + interval).min(start + period);
            match one.due().1 {
                Task::Poll => break,
                task => {
                    let next = (one.now + interval).min(start + period);
                    assert_eq!(task, one.wait(next), "{interval} ms, {instances}");
                }
            }
        }
        assert_eq!(one.now - start, period, "{interval} ms, {instances}");
    }
}

#[test]
fn a_detached_instance_follows_a_fresh_state() {
    let mut one = Instance::new(Membership::Unavailable);
    one.polls(0, SEEN);
    assert_eq!(one.schedule.mode(), Mode::Detached);
    one.fleet = Membership::Member;
    let until = one.at(one.now + 2 * INTERVAL);
    let effects = vec![inherit(Some(until)), enter(Mode::Following, 0)];
    assert_eq!(
        one.follows(Some(one.state(0))),
        (effects, one.wait(one.now + 5_000))
    );
}
