//! A transaction as a request gives it: INVOKE or DEPLOY_ACCOUNT, exactly their fields.
//!
//! One parser for what is estimated and what is written, so that neither takes what the other does
//! not understand. What only the write path refuses (a tip, the query version…) is left to
//! [`crate::policy`]. DECLARE is refused, because a class is larger than a request may be.

use super::{Bounds, Kind, Mode, Transaction};
use crate::felt::Felt;
use crate::rpc::json::Json;
use crate::rpc::values::{FELT, Misfit, felt, felts, misfit};
use alloc::vec::Vec;

/// The version of a transaction that is only estimated: 2^128 + 3.
pub(super) const QUERY_VERSION: &str = "0x100000000000000000000000000000003";
/// The names of the resources, as `resource_bounds` has them.
pub(super) const RESOURCES: [&str; 3] = ["l1_gas", "l1_data_gas", "l2_gas"];

const SHAPE: Misfit =
    misfit("request", "INVOKE or DEPLOY_ACCOUNT of version 3, all fields; no DECLARE, no proofs");

/// The fields that both kinds have, then those of INVOKE, then those of DEPLOY_ACCOUNT.
const FIELDS: [&str; 15] = [
    "type",
    "version",
    "signature",
    "nonce",
    "resource_bounds",
    "tip",
    "paymaster_data",
    "nonce_data_availability_mode",
    "fee_data_availability_mode",
    "sender_address",
    "calldata",
    "account_deployment_data",
    "class_hash",
    "contract_address_salt",
    "constructor_calldata",
];

/// Why a value is no transaction that is read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It says to be of another version: its fields may be other ones.
    Version,
    /// It has a field for a proof.
    Proof,
    /// A field that is missing, unknown, or not what it should be.
    Field(Misfit),
}

impl From<Misfit> for Unfit {
    fn from(misfit: Misfit) -> Self {
        Self::Field(misfit)
    }
}

/// In the words of an estimate.
impl From<Unfit> for Misfit {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Version => misfit("version", "0x3 or 0x100000000000000000000000000000003"),
            Unfit::Proof => SHAPE,
            Unfit::Field(misfit) => misfit,
        }
    }
}

impl Transaction {
    /// Reads a transaction. The length of its lists is bounded by that of the request.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub(crate) fn parse(value: Json<'_>) -> Result<Self, Unfit> {
        let query = match value.get("version").map(Json::as_str) {
            Some(Some("0x3")) => false,
            Some(Some(QUERY_VERSION)) => true,
            Some(Some(_)) => return Err(Unfit::Version),
            Some(None) => return Err(misfit("version", "a string").into()),
            None => return Err(SHAPE.into()),
        };
        if value.get("proof").is_some() || value.get("proof_facts").is_some() {
            return Err(Unfit::Proof);
        }
        let fields = value.members(&FIELDS).map_err(|_| SHAPE)?;
        let [
            Some(type_),
            Some(_),
            Some(signature),
            Some(nonce),
            Some(bounds),
            Some(tip),
            Some(paymaster),
            Some(nonce_mode),
            Some(fee_mode),
            own @ ..,
        ] = fields
        else {
            return Err(SHAPE.into());
        };
        Ok(Self {
            kind: kind(&type_, own)?,
            query,
            signature: list("signature", &signature)?,
            nonce: one("nonce", &nonce)?,
            bounds: resource_bounds(bounds)?,
            tip: amount("tip", &tip)?,
            paymaster_data: list("paymaster_data", &paymaster)?,
            nonce_mode: mode("nonce_data_availability_mode", &nonce_mode)?,
            fee_mode: mode("fee_data_availability_mode", &fee_mode)?,
        })
    }
}

/// The fields that only one kind has: each kind with all of its own and none of the other's.
fn kind(type_: &Json<'_>, own: [Option<Json<'_>>; 6]) -> Result<Kind, Misfit> {
    match (type_.as_str(), own) {
        (Some("INVOKE"), [Some(sender), Some(calldata), Some(deployment), None, None, None]) => {
            Ok(Kind::Invoke {
                sender: one("sender_address", &sender)?,
                calldata: list("calldata", &calldata)?,
                account_deployment_data: list("account_deployment_data", &deployment)?,
            })
        }
        (
            Some("DEPLOY_ACCOUNT"),
            [None, None, None, Some(class), Some(salt), Some(constructor)],
        ) => Ok(Kind::DeployAccount {
            class_hash: one("class_hash", &class)?,
            salt: one("contract_address_salt", &salt)?,
            constructor_calldata: list("constructor_calldata", &constructor)?,
        }),
        _ => Err(SHAPE),
    }
}

fn one(name: &'static str, value: &Json<'_>) -> Result<Felt, Misfit> {
    felt(value).ok_or(misfit(name, FELT))
}

fn list(name: &'static str, value: &Json<'_>) -> Result<Vec<Felt>, Misfit> {
    felts(value).ok_or(misfit(name, "an array of felts"))
}

fn amount(name: &'static str, value: &Json<'_>) -> Result<u64, Misfit> {
    let amount = felt(value).and_then(|felt| felt.to_u64());
    amount.ok_or(misfit(name, "a hexadecimal number of at most 64 bits"))
}

fn price(name: &'static str, value: &Json<'_>) -> Result<u128, Misfit> {
    let price = felt(value).and_then(|felt| felt.to_u128());
    price.ok_or(misfit(name, "a hexadecimal number of at most 128 bits"))
}

fn mode(name: &'static str, value: &Json<'_>) -> Result<Mode, Misfit> {
    match value.as_str() {
        Some("L1") => Ok(Mode::L1),
        Some("L2") => Ok(Mode::L2),
        _ => Err(misfit(name, "L1 or L2")),
    }
}

fn resource_bounds(value: Json<'_>) -> Result<Bounds, Misfit> {
    const SHAPE: Misfit = misfit(
        "resource_bounds",
        "l1_gas, l1_data_gas and l2_gas, each with max_amount and max_price_per_unit",
    );
    let bound = |resource: Json<'_>| {
        let members = resource.members(&["max_amount", "max_price_per_unit"]).map_err(|_| SHAPE)?;
        let [Some(max_amount), Some(max_price)] = members else { return Err(SHAPE) };
        Ok((amount("max_amount", &max_amount)?, price("max_price_per_unit", &max_price)?))
    };
    match value.members(&RESOURCES).map_err(|_| SHAPE)? {
        [Some(l1), Some(l1_data), Some(l2)] => {
            Ok(Bounds { l1_gas: bound(l1)?, l1_data_gas: bound(l1_data)?, l2_gas: bound(l2)? })
        }
        _ => Err(SHAPE),
    }
}
