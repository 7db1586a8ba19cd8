//! `POST /mint-card`: mints a card, once for ever, to a verified account.

use crate::relay::outcome::{Details, Outcome, refuse};
use crate::relay::state::{Decision, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::MintCard;
use portcullis_filters::verdict::Reason;

pub(super) async fn decide(mint: &MintCard, state: &State<'_>) -> Result<Decision, Outcome> {
    let MintCard { recipient, card_id } = *mint;
    let card = state.pins.config.card.address;
    let id = card_id.felts();
    let [first] = state.view(card, "minted_to", &id).await?;
    let [owner] = state.view(card, "owner_of", &id).await?;
    // a card that was passed on is still the one that was minted
    if recipient == first || recipient == owner {
        return Ok(Decision::Already(Details::None));
    }
    if first != Felt::ZERO {
        return refuse(Reason::AlreadyMinted, "the card was minted to another account");
    }
    let [verified] = state.registry("is_verified", &[recipient]).await?;
    if verified == Felt::ZERO {
        return refuse(Reason::NotVerified, "the recipient is not verified");
    }
    let [low, high] = id;
    Ok(Decision::call(card, "mint", vec![recipient, low, high]))
}
