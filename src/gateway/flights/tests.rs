//! Who waits for what, step by step: futures are polled by hand, and nothing runs by itself.

use super::*;
use futures_util::task::noop_waker;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::rpc::{Method, MethodSet};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::oneshot;

type Answer = Result<u32, &'static str>;

/// What the node would be asked for the nonce of this account.
fn nonce_of(account: &str) -> Arc<ReadCall> {
    let policy = GatewayPolicy {
        methods: MethodSet::new(&Method::ALL),
        trusted_proxies: TrustedProxies::default(),
    };
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"starknet_getNonce","params":["latest","{account}"]}}"#
    );
    Arc::new(policy.inspect(body.as_bytes()).expect("it is permitted").call())
}

fn poll(flight: &mut Flight<Answer>) -> Poll<Answer> {
    pin!(flight).poll(&mut Context::from_waker(&noop_waker()))
}

/// A node whose answers the test gives, and the flights to it.
#[derive(Default)]
struct World {
    flights: Option<Arc<Flights<Answer>>>,
    asked: Vec<oneshot::Sender<Answer>>,
    dropped: Arc<AtomicUsize>,
}

impl World {
    fn join(&mut self, epoch: u64, account: &str) -> (Flight<Answer>, Part) {
        struct Told(Arc<AtomicUsize>);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (send, receive) = oneshot::channel();
        let dropped = Arc::clone(&self.dropped);
        let asked = &mut self.asked;
        let flights = self.flights.get_or_insert_with(Flights::new);
        flights.join(epoch, nonce_of(account), move || {
            asked.push(send);
            let told = Told(dropped);
            async move {
                let answer = receive.await.unwrap_or(Err("nobody answers"));
                drop(told);
                answer
            }
        })
    }

    fn answer(&mut self, asked: usize, answer: Answer) {
        let sender = self.asked.remove(asked);
        assert!(sender.send(answer).is_ok(), "somebody waits");
    }

    fn under_way(&self) -> usize {
        self.flights.as_ref().map_or(0, |flights| flights.lock().under_way.len())
    }
}

#[test]
fn identical_calls_share_one_flight_and_others_do_not() {
    let mut world = World::default();
    let (mut first, part) = world.join(0, "0x1");
    assert_eq!(part, Part::Leads);
    for (epoch, account, expected) in
        [(0, "0x1", Part::Joins), (0, "0x01", Part::Joins), (0, "0x2", Part::Leads)]
    {
        let (mut flight, part) = world.join(epoch, account);
        assert_eq!(part, expected, "{account}");
        assert_eq!(poll(&mut flight), Poll::Pending, "the node has said nothing yet");
    }
    let (mut last, _) = world.join(0, "0x1");
    world.answer(0, Ok(7));
    assert_eq!(poll(&mut last), Poll::Ready(Ok(7)));
    assert_eq!(poll(&mut first), Poll::Ready(Ok(7)), "whoever polls it, all have the answer");
}

#[test]
fn a_leader_that_goes_away_fails_nobody() {
    let mut world = World::default();
    let (mut leader, _) = world.join(0, "0x1");
    assert_eq!(poll(&mut leader), Poll::Pending);
    let (mut follower, _) = world.join(0, "0x1");
    drop(leader);
    let (mut late, part) = world.join(0, "0x1");
    assert_eq!(part, Part::Joins, "it is still under way");
    world.answer(0, Ok(7));
    assert_eq!(poll(&mut follower), Poll::Ready(Ok(7)));
    assert_eq!(poll(&mut late), Poll::Ready(Ok(7)));
}

#[test]
fn a_flight_that_nobody_waits_for_is_dropped_and_leaves_nothing() {
    let mut world = World::default();
    let (mut leader, _) = world.join(0, "0x1");
    let (follower, _) = world.join(0, "0x1");
    assert_eq!(poll(&mut leader), Poll::Pending);
    drop(leader);
    assert_eq!(world.dropped.load(Ordering::Relaxed), 0, "one still waits");
    drop(follower);
    assert_eq!(world.dropped.load(Ordering::Relaxed), 1, "the node is not waited for any more");
    assert_eq!(world.under_way(), 0);
    let (_, part) = world.join(0, "0x1");
    assert_eq!(part, Part::Leads, "who comes then asks anew");
}

#[test]
fn an_error_is_shared_and_not_kept() {
    let mut world = World::default();
    let (mut leader, _) = world.join(0, "0x1");
    let (mut follower, _) = world.join(0, "0x1");
    world.answer(0, Err("no node"));
    assert_eq!(poll(&mut follower), Poll::Ready(Err("no node")));
    assert_eq!(poll(&mut leader), Poll::Ready(Err("no node")));
    assert_eq!(world.under_way(), 0, "what is over leaves nothing");
    let (_, part) = world.join(0, "0x1");
    assert_eq!(part, Part::Leads, "the next one asks again");
}

#[test]
fn nobody_joins_a_flight_of_another_epoch() {
    let mut world = World::default();
    let (mut before, _) = world.join(0, "0x1");
    let (mut after, part) = world.join(1, "0x1");
    assert_eq!(part, Part::Leads, "the chain is another one");
    world.answer(0, Ok(1));
    world.answer(0, Ok(2));
    assert_eq!(poll(&mut before), Poll::Ready(Ok(1)));
    assert_eq!(poll(&mut after), Poll::Ready(Ok(2)));
}

#[test]
fn a_flight_that_was_replaced_does_not_take_its_successor_along() {
    let mut world = World::default();
    let flights = Arc::clone(world.flights.insert(Flights::new()));
    let (old, _) = world.join(0, "0x1");
    // as if the last who waited let go at this moment, between two steps of whoever asks next
    let key = Key { epoch: 0, call: nonce_of("0x1") };
    let place = Place { flights: Arc::clone(&flights), key, number: 0 };
    flights.lock().under_way.clear();
    let (_new, part) = world.join(0, "0x1");
    assert_eq!(part, Part::Leads);
    drop(place);
    drop(old);
    assert_eq!(world.under_way(), 1, "the new one is still found");
}
