//! `POST /mint-card`.

use super::body::required_members;
use super::canonical::Value;
use super::policy::OperationPolicy;
use super::state::{Decision, State};
use super::{Definition, Role};
use crate::felt::{Felt, U256};
use crate::rpc::json::Json;
use crate::txm::io::Io;
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::{Reason, Refusal};
use alloc::vec;
use alloc::vec::Vec;
use futures_util::future::try_join;

/// `POST /mint-card`: mints a card, only once, to a verified account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MintCard {
    /// The account that receives the card.
    pub recipient: Felt,
    /// The card.
    pub card_id: U256,
}

impl Definition for MintCard {
    const ROLE: Role = Role::Owner;

    fn parse(body: Json<'_>) -> Result<Self, Refusal> {
        let [recipient, card_id] = required_members(body, ["recipient", "card_id"])?;
        Ok(Self {
            recipient: recipient.address()?,
            card_id: card_id.u256()?,
        })
    }

    fn members(&self) -> Vec<(&'static str, Value<'_>)> {
        vec![
            ("recipient", Value::Felt(&self.recipient)),
            ("card_id", Value::Number(self.card_id)),
        ]
    }

    fn admits(&self, policy: &OperationPolicy<'_>, _now: u64) -> Result<(), Refusal> {
        if policy.contracts.at(self.recipient).is_some() {
            let message = "recipient must not be one of the product's own contracts";
            return Err(Refusal::new(Reason::ArgumentNotAllowed, message));
        }
        Ok(())
    }

    async fn decide(&self, state: &State<'_, impl Io>) -> Result<Decision, NotSent> {
        let Self { recipient, card_id } = *self;
        let card = state.io.pins().contracts.card;
        let id = card_id.felts();
        let ([first], [owner]) = try_join(
            state.view(card, "minted_to", &id),
            state.view(card, "owner_of", &id),
        )
        .await?;
        // true also of the first owner of a card that changed hands
        if recipient == first || recipient == owner {
            return Ok(Decision::Already(Details::None));
        }
        if first != Felt::ZERO {
            return refuse(
                Reason::AlreadyMinted,
                "the card was minted to another account",
            );
        }
        let [verified] = state.registry("is_verified", &[recipient]).await?;
        if verified == Felt::ZERO {
            return refuse(Reason::NotVerified, "the recipient is not verified");
        }
        let [low, high] = id;
        Ok(Decision::call(card, "mint", vec![recipient, low, high]))
    }
}
