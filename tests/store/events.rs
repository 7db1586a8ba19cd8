//! Events: which of them are due, and what changes that.

use crate::world::{NOW, World, intend, intent};
use portcullis_filters::events::{
    Attempts, Backlog, DueTimes, Event, NewEvent, Settled, Settlement, Waiting,
};
use portcullis_filters::post::Answer;
use portcullis_store::Store;

const SECOND: i64 = 1_000_000;

/// Keeps an event for each of two entries of two writes: 1 and 2 of the first, 3 and 4 of the
/// second.
async fn with_events(world: &World) -> Store {
    let store = world.open().await;
    let events = store.events();
    assert_eq!(events.cursor().await.unwrap(), 0);
    for number in [1, 2] {
        intend(&store, &intent(number)).await;
    }
    let entries = events.entries(0).await.unwrap();
    let new = entries.iter().filter_map(|entry| {
        Some(NewEvent {
            seq: entry.seq,
            write: entry.moved?.write,
        })
    });
    let new: Vec<_> = new.collect();
    assert!(
        !events.keep(&new, 1, 4, NOW).await.unwrap(),
        "another cursor"
    );
    assert_eq!(due(&store, NOW).await.len(), 0, "neither is kept");
    assert!(events.keep(&new, 0, 4, NOW).await.unwrap());
    assert_eq!(events.cursor().await.unwrap(), 4);
    store
}

async fn due(store: &Store, at_us: i64) -> Vec<Waiting<Event>> {
    store.events().due(DueTimes::at(at_us)).await.unwrap()
}

/// The entries whose events are due.
async fn numbers(store: &Store, at_us: i64) -> Vec<i64> {
    due(store, at_us).await.iter().map(|one| one.seq).collect()
}

/// The settlement of an attempt.
fn settled(sent: &Waiting<Event>, due_us: Option<i64>) -> Settlement<Event> {
    let attempts = Attempts {
        failed: sent.attempts.failed + 1,
        first_us: Some(NOW),
    };
    Settlement {
        sent: sent.clone(),
        answer: Answer::None,
        settled: match due_us {
            Some(due_us) => Settled::Later { attempts, due_us },
            None => Settled::Delivered,
        },
    }
}

pub(crate) async fn an_event_waits_for_those_of_its_write(world: World) {
    let store = with_events(&world).await;
    let first = due(&store, NOW).await;
    assert_eq!(numbers(&store, NOW).await, [1, 3], "one of each write");
    let later = NOW + 10 * SECOND;
    let both = [settled(&first[0], Some(later)), settled(&first[1], None)];
    store.events().settle(&both, None).await.unwrap();
    assert_eq!(numbers(&store, later - 1).await, [4], "3 was delivered");
    let again = due(&store, later).await;
    assert_eq!((again[1].seq, again[1].attempts.failed), (1, 1));
    let ahead = settled(&again[1], Some(NOW + 3 * 3_600 * SECOND));
    store.events().settle(&[ahead], None).await.unwrap();
    let found = numbers(&store, NOW).await;
    assert!(
        found.contains(&1),
        "only a clock that was ahead dates so: {found:?}"
    );
    let end = again.iter().map(|one| settled(one, None));
    let end: Vec<_> = end.collect();
    store.events().settle(&end, None).await.unwrap();
    assert_eq!(numbers(&store, NOW).await, [2], "1 was delivered");
}

pub(crate) async fn a_receiver_that_is_back_gets_all_soon(world: World) {
    let store = with_events(&world).await;
    let first = due(&store, NOW).await;
    let [late, early, soon] = [900, 1, 5].map(|seconds| NOW + seconds * SECOND);
    let both = [
        settled(&first[0], Some(late)),
        settled(&first[1], Some(early)),
    ];
    store.events().settle(&both, None).await.unwrap();
    store.events().settle(&[], Some(soon)).await.unwrap();
    assert_eq!(
        numbers(&store, early).await,
        [3],
        "none is later than before"
    );
    assert_eq!(numbers(&store, soon - 1).await, [3]);
    assert_eq!(numbers(&store, soon).await, [3, 1]);
}

pub(crate) async fn what_was_not_read_is_in_the_backlog(world: World) {
    let store = with_events(&world).await;
    let backlog = async || store.events().backlog().await.unwrap();
    let waits = |waiting, oldest_us| Backlog { waiting, oldest_us };
    assert_eq!(backlog().await, waits(4, Some(NOW)));
    for _ in 0..2 {
        let end: Vec<_> = due(&store, NOW)
            .await
            .iter()
            .map(|one| settled(one, None))
            .collect();
        store.events().settle(&end, None).await.unwrap();
    }
    assert_eq!(backlog().await, waits(0, None));
    store
        .intents()
        .intend(&intent(3), NOW + SECOND)
        .await
        .unwrap();
    assert_eq!(backlog().await, waits(0, Some(NOW + SECOND)), "unread");
}
