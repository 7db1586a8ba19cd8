//! Rows that are erased at the request of a user.

use crate::transfer::{ANN, BOB};
use crate::world::World;
use portcullis_store::Forgotten;

const ANN_ID: &str = "00000000-0000-4000-8000-000000000001";
const BOB_ID: &str = "00000000-0000-4000-8000-000000000002";
/// Of the tables that know a user.
const ROWS: &str = "SELECT (SELECT count(*) FROM age_session) * 10000 \
    + (SELECT count(*) FROM age_event) * 1000 + (SELECT count(*) FROM age_user) * 100 \
    + (SELECT count(*) FROM follow) * 10 + (SELECT count(*) FROM suggestion)";

/// Of each table two rows of Ann's, if it can have them, and one of Bob's.
async fn fill(world: &World) {
    for (user, did, other, sessions) in [(ANN_ID, ANN, BOB, 2), (BOB_ID, BOB, "did:web:c", 1)] {
        let mut sql = format!(
            "INSERT INTO account (user_id, did, created_us) VALUES ('{user}', '{did}', 1);
             INSERT INTO follow (did, subject_did) VALUES ('{did}', '{other}');
             INSERT INTO age_user (user_id, status, last_occurred_us) \
             VALUES ('{user}', 'verified', 1);"
        );
        for number in 0..sessions {
            sql += &format!(
                "INSERT INTO suggestion VALUES ('{did}', {number}, 1, '{other}', 'p', 'r', 1);
                 INSERT INTO age_session (subject_ref, user_id, status, created_us, expires_us) \
                 VALUES ('{user}-{number}', '{user}', 'verified', 1, 1);
                 INSERT INTO age_event (event_id, digest, subject_ref, status, occurred_us, \
                 received_us, outcome, status_after) \
                 VALUES ('{user}-{number}', '', '{user}-{number}', 'verified', 1, 1, 'applied', \
                 'verified');"
            );
        }
        world.raw(&sql).await.unwrap();
    }
    world
        .raw(&format!("INSERT INTO follow VALUES ('did:web:c', '{ANN}')"))
        .await
        .unwrap();
}

pub(crate) async fn forgetting_a_user_erases_every_row(world: World) {
    let store = world.open().await;
    fill(&world).await;
    assert_eq!(world.number(ROWS).await, 33_233);
    for nobody in ["00000000-0000-4000-8000-000000000003", "did:web:nobody"] {
        assert_eq!(
            store.forget(nobody).await.unwrap(),
            Forgotten::default(),
            "{nobody}"
        );
    }
    let rest = Forgotten::default();
    let all = Forgotten {
        age_event: 2,
        age_session: 2,
        age_user: 1,
        follow: 2,
        suggestion: 2,
        ..rest
    };
    assert_eq!(store.forget(ANN_ID).await.unwrap(), all);
    assert_eq!(world.number(ROWS).await, 11_111, "what is Bob's stays");
    assert_eq!(
        store.forget(ANN).await.unwrap(),
        Forgotten::default(),
        "nothing is left"
    );
    let all = Forgotten {
        age_event: 1,
        age_session: 1,
        age_user: 1,
        follow: 1,
        suggestion: 1,
        ..rest
    };
    assert_eq!(store.forget(BOB).await.unwrap(), all, "by the DID");
    assert_eq!(world.number(ROWS).await, 0);
    assert_eq!(
        world.number("SELECT count(*) FROM account").await,
        2,
        "which is content"
    );
}

pub(crate) async fn a_forgotten_user_is_suggested_to_nobody(world: World) {
    let store = world.open().await;
    fill(&world).await;
    let suggest = format!(
        "INSERT INTO suggestion VALUES ('*', 7, 1, '{ANN}', 'p', 'r', 1), \
         ('did:web:c', 7, 1, '{ANN}', 'p', 'r', 1), ('did:web:c', 7, 2, '{BOB}', 'p', 'r', 1)"
    );
    world.raw(&suggest).await.unwrap();
    let of_ann = format!("SELECT count(*) FROM suggestion WHERE actor_did = '{ANN}'");
    assert_eq!(store.forget(ANN_ID).await.unwrap().suggestion, 4);
    assert_eq!(world.number(&of_ann).await, 0);
    let of_bob = format!("SELECT count(*) FROM suggestion WHERE actor_did = '{BOB}'");
    assert_eq!(world.number(&of_bob).await, 1, "the others stay");
    // the row that hid it is gone: it must not show again
    let close = format!("UPDATE account SET status = 'taken_down' WHERE did = '{BOB}'");
    world.raw(&close).await.unwrap();
    let delete = format!("DELETE FROM account WHERE did = '{BOB}'");
    world.raw(&delete).await.unwrap();
    assert_eq!(world.number(&of_bob).await, 0);
}

pub(crate) async fn a_failed_erasure_erases_nothing(world: World) {
    let store = world.open().await;
    fill(&world).await;
    // the last table that is touched
    world
        .raw("ALTER TABLE suggestion RENAME TO elsewhere")
        .await
        .unwrap();
    store.forget(ANN_ID).await.unwrap_err();
    world
        .raw("ALTER TABLE elsewhere RENAME TO suggestion")
        .await
        .unwrap();
    assert_eq!(world.number(ROWS).await, 33_233);
}
