//! Who waits for what, step by step: nothing runs by itself.

use super::super::cache_key::permitted;
use super::*;
use tokio::sync::oneshot::error::TryRecvError;

type Answer = Result<u32, &'static str>;

/// Flights to a node whose answers the test gives.
struct World {
    flights: Arc<Flights<Answer>>,
    keys: RandomState,
}

impl World {
    fn new() -> Self {
        Self { flights: Flights::new(), keys: RandomState::new() }
    }

    /// Asks for the nonce of an account.
    fn join(&self, epoch: u64, account: &str) -> Role<Answer> {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"starknet_getNonce","params":["latest","{account}"]}}"#
        );
        let call = permitted(&body).into_read().call();
        self.flights.join(epoch, Arc::new(CacheKey::new(call, &self.keys)))
    }

    fn leads(&self, epoch: u64, account: &str) -> Leader<Answer> {
        match self.join(epoch, account) {
            Role::Leader(lead) => lead,
            Role::Follower(_) => panic!("{account} in epoch {epoch} is under way"),
        }
    }

    fn follows(&self, epoch: u64, account: &str) -> oneshot::Receiver<Answer> {
        match self.join(epoch, account) {
            Role::Leader(_) => panic!("{account} in epoch {epoch} is not under way"),
            Role::Follower(answer) => answer,
        }
    }

    fn under_way(&self) -> usize {
        self.flights.lock().len()
    }
}

#[test]
fn identical_reads_share_one_flight_and_others_do_not() {
    let world = World::new();
    let lead = world.leads(0, "0x1");
    let mut same = world.follows(0, "0x1");
    let mut spelled_otherwise = world.follows(0, "0x01");
    let _other = world.leads(0, "0x2");
    assert_eq!(same.try_recv(), Err(TryRecvError::Empty), "the node has said nothing yet");
    lead.complete(&Ok(7));
    assert_eq!(same.try_recv(), Ok(Ok(7)));
    assert_eq!(spelled_otherwise.try_recv(), Ok(Ok(7)));
}

#[test]
fn when_a_leader_goes_away_one_who_followed_leads_and_the_others_follow_that_one() {
    let world = World::new();
    let leader = world.leads(0, "0x1");
    let (mut one, mut two) = (world.follows(0, "0x1"), world.follows(0, "0x1"));
    drop(leader);
    assert_eq!(one.try_recv(), Err(TryRecvError::Closed), "it is told");
    let next = world.leads(0, "0x1");
    assert_eq!(two.try_recv(), Err(TryRecvError::Closed));
    let mut two = world.follows(0, "0x1");
    next.complete(&Ok(7));
    assert_eq!(two.try_recv(), Ok(Ok(7)));
}

#[test]
fn a_flight_that_nobody_waits_for_leaves_nothing() {
    let world = World::new();
    let leader = world.leads(0, "0x1");
    drop(world.follows(0, "0x1"));
    drop(leader);
    assert_eq!(world.under_way(), 0);
    world.leads(0, "0x1").complete(&Ok(1));
    assert_eq!(world.under_way(), 0);
}

#[test]
fn an_error_is_shared_and_not_kept() {
    let world = World::new();
    let leader = world.leads(0, "0x1");
    let mut follower = world.follows(0, "0x1");
    leader.complete(&Err("no node"));
    assert_eq!(follower.try_recv(), Ok(Err("no node")));
    let _asks_again = world.leads(0, "0x1");
}

#[test]
fn nobody_joins_a_flight_of_another_epoch() {
    let world = World::new();
    let before = world.leads(0, "0x1");
    let after = world.leads(1, "0x1");
    let (mut old, mut new) = (world.follows(0, "0x1"), world.follows(1, "0x1"));
    before.complete(&Ok(1));
    after.complete(&Ok(2));
    assert_eq!((old.try_recv(), new.try_recv()), (Ok(Ok(1)), Ok(Ok(2))));
}
