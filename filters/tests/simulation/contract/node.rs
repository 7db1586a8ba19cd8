//! The promises of the node's methods.

use super::{
    Mode, NAME, Stage, code_of, estimate_text, eventually, is_unsent, ok, owner, sent, signed,
};
use futures_util::future::{Either, select};
use portcullis_filters::felt::Felt;
use portcullis_filters::txm::io::{Io as _, NodeIo as _};
use portcullis_filters::txm::node::{CallError, Sender, code};
use std::pin::pin;
use std::time::Duration;

/// A hash that no transaction has.
fn unknown() -> Felt {
    Felt::from(0xdead_u64)
}

pub(crate) async fn state_is_of_the_block_being_built<S: Stage>(stage: &S) {
    let io = stage.io();
    let effect = stage.effect(1);
    let before = ok(io.call(effect.to, effect.view, &effect.args).await);
    let sent = sent(stage, 1).await;
    assert_eq!(ok(io.nonce(owner(stage)).await), sent.nonce + 1);
    let after = ok(io.call(effect.to, effect.view, &effect.args).await);
    assert_ne!(after, before, "a view shows what no block has yet");
    let class = ok(io.class_hash_at(owner(stage)).await);
    assert_eq!(class, Some(io.pins().account_class));
}

pub(crate) async fn an_undeployed_account_has_no_nonce<S: Stage>(stage: &S) {
    let (io, nobody) = (stage.io(), stage.nobody());
    let expected = code::CONTRACT_NOT_FOUND;
    assert_eq!(code_of(io.nonce(nobody).await), expected);
    assert_eq!(ok(io.class_hash_at(nobody).await), None);
    let view = stage.effect(1).view;
    assert_eq!(code_of(io.call(nobody, view, &[]).await), expected);
}

pub(crate) async fn only_accepted_blocks_are_read<S: Stage>(stage: &S) {
    let io = stage.io();
    stage.close_block().await;
    let before = ok(io.head().await);
    let sent = sent(stage, 1).await;
    assert_eq!(ok(io.head().await), before, "a block is being built");
    assert_eq!(ok(io.head_of(0).await), before.number);
    let next = before.number + 1;
    assert_eq!(ok(io.block_of(0, next).await), None, "it is not accepted");
    stage.close_block().await;
    let head = ok(io.head().await);
    assert_eq!(head.number, next);
    let listed = ok(io.block_of(0, next).await).expect("it is accepted");
    assert_eq!(listed.hash, head.hash);
    assert_eq!(listed.transactions, [sent.hash]);
    assert_eq!(ok(io.block_of(0, next + 1_000).await), None);
}

pub(crate) async fn a_chain_that_starts_over_is_another<S: Stage>(stage: &S) {
    let io = stage.io();
    let first = ok(io.anchor().await);
    stage.close_block().await;
    stage.close_block().await;
    assert_eq!(ok(io.anchor().await), first);
    stage.roll_back(1).await;
    eventually(stage, "the anchor after a rollback", async || {
        io.anchor().await.is_ok_and(|anchor| anchor == first)
    })
    .await;
    stage.start_over().await;
    eventually(stage, "another anchor", async || {
        io.anchor().await.is_ok_and(|anchor| anchor != first)
    })
    .await;
}

pub(crate) async fn an_estimate_has_prices_or_a_refusal<S: Stage>(stage: &S) {
    let io = stage.io();
    let nonce = ok(io.nonce(owner(stage)).await);
    let bounds = ok(io.estimate(&estimate_text(stage, 1, nonce).text).await);
    assert!(bounds.max_fee().is_some_and(|fee| fee > 0), "{bounds:?}");
    let used = sent(stage, 1).await;
    let text = estimate_text(stage, 2, used.nonce).text;
    let refused = code_of(io.estimate(&text).await);
    assert_ne!(refused, code::TRANSACTION_NOT_FOUND, "the nonce is used");
}

pub(crate) async fn a_receipt_names_its_block_once_accepted<S: Stage>(stage: &S) {
    let io = stage.io();
    let sent = sent(stage, 1).await;
    let pending = ok(io.receipt(sent.hash).await).expect("it was taken");
    assert_eq!((pending.accepted, pending.block), (false, None));
    assert_eq!(ok(io.receipt_of(1, sent.hash).await), Some(pending));
    stage.close_block().await;
    let receipt = ok(io.receipt(sent.hash).await).expect("it is in a block");
    assert!(receipt.accepted && receipt.outcome.is_ok(), "{receipt:?}");
    let (number, hash) = receipt.block.expect("the receipt names it");
    let listed = ok(io.block_of(0, number).await).expect("it is accepted");
    assert_eq!(listed.hash, hash);
    assert!(listed.transactions.contains(&sent.hash));
    assert_eq!(ok(io.receipt_of(1, sent.hash).await), Some(receipt));
}

pub(crate) async fn an_unknown_transaction_has_no_receipt<S: Stage>(stage: &S) {
    let io = stage.io();
    assert_eq!(ok(io.receipt(unknown()).await), None);
    assert_eq!(ok(io.receipt_of(0, unknown()).await), None);
}

pub(crate) async fn a_slot_is_found_in_its_block<S: Stage>(stage: &S) {
    let (io, owner) = (stage.io(), owner(stage));
    let sent = sent(stage, 1).await;
    stage.close_block().await;
    let number = ok(io.head().await).number;
    for url in io.urls() {
        let found = async |number, nonce| ok(io.transaction_of(url, number, owner, nonce).await);
        assert_eq!(found(number, sent.nonce).await, Some(sent.hash));
        assert_eq!(found(number, sent.nonce + 1).await, None);
        assert_eq!(found(number + 1_000, sent.nonce).await, None, "no block");
    }
    let other = io.transaction_of(0, number, stage.nobody(), sent.nonce);
    assert_eq!(ok(other.await), None, "of another account");
}

pub(crate) async fn a_rolled_back_transaction_is_in_no_block<S: Stage>(stage: &S) {
    let io = stage.io();
    stage.close_block().await;
    let sent = sent(stage, 1).await;
    stage.close_block().await;
    let number = ok(io.head_of(0).await);
    stage.roll_back(1).await;
    assert_eq!(ok(io.head_of(0).await), number - 1);
    assert_eq!(ok(io.block_of(0, number).await), None);
    let receipt = ok(io.receipt_of(0, sent.hash).await);
    assert!(receipt.is_none_or(|receipt| !receipt.accepted));
    stage.close_block().await;
    let listed = ok(io.block_of(0, number).await).expect("another block");
    assert!(!listed.transactions.contains(&sent.hash));
}

pub(crate) async fn each_url_shows_its_own_chain<S: Stage>(stage: &S) {
    let io = stage.io();
    stage.close_block().await;
    let sent = sent(stage, 1).await;
    stage.close_block().await;
    let head = ok(io.head_of(0).await);
    stage.set_url(1, Mode::Behind(1)).await;
    assert_eq!(io.urls(), [0, 1], "a block behind is no fault");
    assert_eq!(ok(io.head_of(1).await), head - 1);
    assert_eq!(ok(io.block_of(1, head).await), None);
    assert_eq!(ok(io.receipt_of(1, sent.hash).await), None);
    assert!(ok(io.receipt_of(0, sent.hash).await).is_some());
}

pub(crate) async fn a_url_names_sender_and_nonce<S: Stage>(stage: &S) {
    let (io, owner) = (stage.io(), owner(stage));
    stage.close_block().await;
    let sent = sent(stage, 1).await;
    stage.close_block().await;
    let sender = Sender {
        account: owner,
        nonce: sent.nonce,
    };
    stage.set_url(1, Mode::Behind(1)).await;
    assert_eq!(ok(io.sender_of(0, sent.hash).await), Some(sender));
    assert_eq!(ok(io.sender_of(1, sent.hash).await), None, "not shown yet");
    assert_eq!(ok(io.sender_of(0, unknown()).await), None);
    assert_eq!(ok(io.nonce_of(0, owner).await), sent.nonce + 1);
    assert_eq!(ok(io.nonce_of(1, owner).await), sent.nonce);
    let refused = code_of(io.nonce_of(0, stage.nobody()).await);
    assert_eq!(refused, code::CONTRACT_NOT_FOUND);
}

pub(crate) async fn an_unreachable_url_proves_nothing<S: Stage>(stage: &S) {
    let (io, owner) = (stage.io(), owner(stage));
    stage.set_url(1, Mode::Down).await;
    assert!(is_unsent(io.head_of(1).await));
    assert!(is_unsent(io.block_of(1, 0).await));
    assert!(is_unsent(io.receipt_of(1, unknown()).await));
    assert!(is_unsent(io.transaction_of(1, 0, owner, 0).await));
    assert!(is_unsent(io.nonce_of(1, owner).await));
    assert!(is_unsent(io.sender_of(1, unknown()).await));
    assert!(io.head_of(0).await.is_ok(), "the other one answers");
}

pub(crate) async fn a_call_goes_to_the_next_url<S: Stage>(stage: &S) {
    let io = stage.io();
    stage.set_url(0, Mode::Down).await;
    let sent = sent(stage, 1).await;
    stage.close_block().await;
    let head = ok(io.head().await);
    assert_eq!(ok(io.head_of(1).await), head.number);
    assert!(ok(io.receipt(sent.hash).await).is_some());
    assert!(io.anchor().await.is_ok());
}

pub(crate) async fn without_a_url_nothing_is_sent<S: Stage>(stage: &S) {
    let io = stage.io();
    let signed = signed(stage, 1).await;
    stage.set_url(0, Mode::Down).await;
    stage.set_url(1, Mode::Down).await;
    assert!(is_unsent(io.add(NAME, &signed.text, None).await));
    assert!(is_unsent(io.receipt(signed.hash).await), "no proof");
    stage.set_url(1, Mode::Up).await;
    eventually(stage, "the node answers again", async || {
        io.nonce(owner(stage)).await.is_ok()
    })
    .await;
    assert_eq!(ok(io.nonce(owner(stage)).await), signed.nonce);
}

pub(crate) async fn an_add_without_an_answer_may_be_sent<S: Stage>(stage: &S) {
    let io = stage.io();
    let signed = signed(stage, 1).await;
    stage.set_url(0, Mode::Mute).await;
    stage.set_url(1, Mode::Mute).await;
    assert!(!is_unsent(io.add(NAME, &signed.text, None).await));
    stage.set_url(0, Mode::Up).await;
    stage.set_url(1, Mode::Up).await;
    eventually(stage, "the transaction is there", async || {
        matches!(io.receipt(signed.hash).await, Ok(Some(_)))
    })
    .await;
}

pub(crate) async fn a_transaction_is_taken_once<S: Stage>(stage: &S) {
    let io = stage.io();
    let sent = sent(stage, 1).await;
    match io.add(NAME, &sent.text, None).await {
        Err(CallError::Returned(error)) => assert!(error.is_definite(), "{error:?}"),
        other => panic!("the node has it: {other:?}"),
    }
    assert_eq!(ok(io.nonce(owner(stage)).await), sent.nonce + 1);
}

pub(crate) async fn what_was_shown_is_not_taken_back<S: Stage>(stage: &S) {
    let io = stage.io();
    for _ in 0..4 {
        stage.close_block().await;
    }
    let shown = ok(io.head().await).number;
    io.note_shown(shown);
    stage.set_url(0, Mode::Behind(2)).await;
    assert!(ok(io.head().await).number >= shown, "of the other URL");
    assert_eq!(ok(io.head_of(0).await), shown - 2, "its own answer");
    stage.set_url(1, Mode::Behind(2)).await;
    let until = io.now() + Duration::from_millis(800);
    while io.now() < until {
        let head = pin!(io.head());
        let soon = pin!(io.sleep(Duration::from_millis(200)));
        if let Either::Left((Ok(head), _)) = select(head, soon).await {
            panic!("{} is older than {shown}", head.number);
        }
    }
    eventually(stage, "the block is known to be gone", async || {
        let head = io.head().await;
        head.is_ok_and(|head| head.number == shown - 2)
    })
    .await;
}

pub(crate) async fn a_url_far_behind_has_no_say<S: Stage>(stage: &S) {
    let io = stage.io();
    for _ in 0..12 {
        stage.close_block().await;
    }
    assert_eq!(io.urls(), [0, 1]);
    stage.set_url(1, Mode::Behind(10)).await;
    eventually(stage, "the URL is left out", async || io.urls() == [0]).await;
    stage.set_url(1, Mode::Up).await;
    eventually(stage, "the URL is back", async || io.urls() == [0, 1]).await;
}
