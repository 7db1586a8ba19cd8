//! Single-flight step by step: no task runs.

use super::super::cache::permitted;
use super::*;
use tokio::sync::oneshot::error::TryRecvError;

type Number = Result<u32, &'static str>;

/// Flights whose answers the test sends.
struct World {
    flights: Arc<Flights<Number>>,
    keys: RandomState,
}

impl World {
    fn new() -> Self {
        Self {
            flights: Flights::new(),
            keys: RandomState::new(),
        }
    }

    /// Joins the flight that reads an account's nonce.
    fn join(&self, epoch: u64, account: &str) -> Role<Number> {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"starknet_getNonce","params":["latest","{account}"]}}"#
        );
        let call = permitted(&body).into_read().call();
        self.flights
            .join((epoch, None), Arc::new(CacheKey::new(call, &self.keys)))
    }

    fn leads(&self, epoch: u64, account: &str) -> Leader<Number> {
        match self.join(epoch, account) {
            Role::Leader(lead) => lead,
            Role::Follower(_) => panic!("{account} in epoch {epoch} is under way"),
        }
    }

    fn follows(&self, epoch: u64, account: &str) -> oneshot::Receiver<Number> {
        match self.join(epoch, account) {
            Role::Leader(_) => panic!("{account} in epoch {epoch} is not under way"),
            Role::Follower(answer) => answer,
        }
    }

    fn entries(&self) -> usize {
        self.flights.0.lock().len()
    }
}

#[test]
fn nobody_joins_a_flight_of_an_earlier_position() {
    let world = World::new();
    let call = permitted(r#"{"jsonrpc":"2.0","id":1,"method":"starknet_blockNumber"}"#);
    let key = Arc::new(CacheKey::new(call.into_read().call(), &world.keys));
    let join = |height| {
        let position = Some(ChainPosition { epoch: 1, height });
        world.flights.join((1, position), Arc::clone(&key))
    };
    let (before, after) = (join(7), join(8));
    assert!(matches!(before, Role::Leader(_)));
    assert!(
        matches!(after, Role::Leader(_)),
        "the node may have answered the first at 7"
    );
    assert!(matches!(join(8), Role::Follower(_)));
}

#[test]
fn only_identical_reads_share_a_flight() {
    let world = World::new();
    let lead = world.leads(0, "0x1");
    let mut same = world.follows(0, "0x1");
    let mut spelled_otherwise = world.follows(0, "0x01");
    let _other = world.leads(0, "0x2");
    assert_eq!(
        same.try_recv(),
        Err(TryRecvError::Empty),
        "the node has not answered yet"
    );
    lead.complete(&Ok(7));
    assert_eq!(same.try_recv(), Ok(Ok(7)));
    assert_eq!(spelled_otherwise.try_recv(), Ok(Ok(7)));
}

#[test]
fn a_follower_leads_when_its_leader_goes_away() {
    let world = World::new();
    let leader = world.leads(0, "0x1");
    let (mut one, mut two) = (world.follows(0, "0x1"), world.follows(0, "0x1"));
    drop(leader);
    assert_eq!(one.try_recv(), Err(TryRecvError::Closed), "it is notified");
    let next = world.leads(0, "0x1");
    assert_eq!(two.try_recv(), Err(TryRecvError::Closed));
    let mut two = world.follows(0, "0x1");
    next.complete(&Ok(7));
    assert_eq!(two.try_recv(), Ok(Ok(7)));
}

#[test]
fn an_abandoned_flight_leaves_no_entry() {
    let world = World::new();
    let leader = world.leads(0, "0x1");
    drop(world.follows(0, "0x1"));
    drop(leader);
    assert_eq!(world.entries(), 0);
    world.leads(0, "0x1").complete(&Ok(1));
    assert_eq!(world.entries(), 0);
}

#[test]
fn an_error_is_shared_but_not_stored() {
    let world = World::new();
    let leader = world.leads(0, "0x1");
    let mut follower = world.follows(0, "0x1");
    leader.complete(&Err("no node"));
    assert_eq!(follower.try_recv(), Ok(Err("no node")));
    let _next = world.leads(0, "0x1");
}

#[test]
fn flights_of_two_epochs_are_separate() {
    let world = World::new();
    let before = world.leads(0, "0x1");
    let after = world.leads(1, "0x1");
    let (mut old, mut new) = (world.follows(0, "0x1"), world.follows(1, "0x1"));
    before.complete(&Ok(1));
    after.complete(&Ok(2));
    assert_eq!((old.try_recv(), new.try_recv()), (Ok(Ok(1)), Ok(Ok(2))));
}
