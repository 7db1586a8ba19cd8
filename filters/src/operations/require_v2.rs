//! `POST /require-v2`.

use super::body::optional_members;
use super::canonical::Value;
use super::state::{Decision, State};
use super::{Definition, Required, Role};
use crate::rpc::json::Json;
use crate::txm::io::Io;
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::{Reason, Refusal};
use alloc::vec;
use alloc::vec::Vec;

/// The value of `confirm` that activates permanent V2 verification.
pub const PHRASE: &str = "ACTIVATE PERMANENT V2 VERIFICATION";

/// `POST /require-v2`: activates permanent V2 verification, or confirms that it is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequireV2 {
    /// Whether `confirm` is [`PHRASE`], word for word.
    pub confirmed: bool,
}

impl Definition for RequireV2 {
    const ROLE: Role = Role::Owner;
    /// It makes the V2 pin true, so that pin need not hold before.
    const REQUIRED: Required = Required::AllButV2;

    /// Parses `confirm` without judging it: confirmation does not matter once V2 is active.
    fn parse(body: Json<'_>) -> Result<Self, Refusal> {
        let [confirm] = optional_members(body, ["confirm"])?;
        let confirmed = match confirm {
            None => false,
            Some(confirm) => confirm.read("a string", |text| Some(text == PHRASE))?,
        };
        Ok(Self { confirmed })
    }

    fn members(&self) -> Vec<(&'static str, Value<'_>)> {
        if self.confirmed {
            vec![("confirm", Value::Text(PHRASE))]
        } else {
            Vec::new()
        }
    }

    async fn decide(&self, state: &State<'_, impl Io>) -> Result<Decision, NotSent> {
        if state.is_v2_active().await? {
            return Ok(Decision::Already(Details::V2_ACTIVE));
        }
        if !self.confirmed {
            let message = "this cannot be undone: confirm with ACTIVATE PERMANENT V2 VERIFICATION";
            return refuse(Reason::ConfirmationRequired, message);
        }
        Ok(Decision::call(
            state.io.pins().contracts.registry,
            "require_v2",
            Vec::new(),
        ))
    }
}
