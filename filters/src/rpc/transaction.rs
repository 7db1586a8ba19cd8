//! The V3 transactions that `estimateFee` takes: INVOKE and DEPLOY_ACCOUNT, exactly their fields.
//!
//! `BROADCASTED_INVOKE_TXN_V3` and `BROADCASTED_DEPLOY_ACCOUNT_TXN_V3` of the Starknet API, as
//! strict as the write path, with what an estimate needs beside: the query version, any tip, and
//! bounds of zero. DECLARE is refused (a class is larger than a request may be), and so are proofs.

use super::json::Json;
use super::params::{FELT, Misfit, felt, felts, misfit, write_felt, write_felts};
use crate::felt::{Felt, HexNumber};
use alloc::vec::Vec;

/// Felts in one transaction's calldata, signature or other list. The write path takes no more, and
/// the node executes an estimate under its global lock.
const MAX_FELTS: usize = 256;

/// The version of a transaction that is only estimated: 2^128 + 3, so that its signature can not be
/// used to submit it.
const QUERY_VERSION: &str = "0x100000000000000000000000000000003";

/// A transaction to estimate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    kind: Kind,
    query: bool,
    signature: Vec<Felt>,
    nonce: Felt,
    resource_bounds: [Bound; 3],
    tip: HexNumber,
    paymaster_data: Vec<Felt>,
    nonce_mode: Mode,
    fee_mode: Mode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Invoke { sender_address: Felt, calldata: Vec<Felt>, account_deployment_data: Vec<Felt> },
    DeployAccount { class_hash: Felt, salt: Felt, constructor_calldata: Vec<Felt> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    max_amount: HexNumber,
    max_price_per_unit: HexNumber,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    L1,
    L2,
}

const RESOURCES: [&str; 3] = ["l1_gas", "l1_data_gas", "l2_gas"];
const MODE: &str = "L1 or L2";
const LIST: &str = "an array of at most 256 felts";
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

/// Reads one transaction.
///
/// # Errors
/// The first field that is missing, unknown, or not what it should be.
pub(super) fn parse(value: Json<'_>) -> Result<Transaction, Misfit> {
    let fields = value.members(&FIELDS).map_err(|_| SHAPE)?;
    let [
        Some(type_),
        Some(version),
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
        return Err(SHAPE);
    };
    Ok(Transaction {
        kind: kind(&type_, own)?,
        query: match version.as_str() {
            Some("0x3") => false,
            Some(QUERY_VERSION) => true,
            _ => return Err(misfit("version", "0x3 or 0x100000000000000000000000000000003")),
        },
        signature: list("signature", &signature)?,
        nonce: one("nonce", &nonce)?,
        resource_bounds: resource_bounds(bounds)?,
        tip: number("tip", &tip, 64)?,
        paymaster_data: list("paymaster_data", &paymaster)?,
        nonce_mode: mode("nonce_data_availability_mode", &nonce_mode)?,
        fee_mode: mode("fee_data_availability_mode", &fee_mode)?,
    })
}

/// The fields that only one kind has: each kind with all of its own and none of the other's.
fn kind(type_: &Json<'_>, own: [Option<Json<'_>>; 6]) -> Result<Kind, Misfit> {
    match (type_.as_str(), own) {
        (Some("INVOKE"), [Some(sender), Some(calldata), Some(deployment), None, None, None]) => {
            Ok(Kind::Invoke {
                sender_address: one("sender_address", &sender)?,
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
    felts(value).filter(|felts| felts.len() <= MAX_FELTS).ok_or(misfit(name, LIST))
}

fn number(name: &'static str, value: &Json<'_>, bits: u32) -> Result<HexNumber, Misfit> {
    value
        .as_str()
        .and_then(|text| HexNumber::parse(text, bits))
        .ok_or(misfit(name, "a hexadecimal number of at most 64 bits (a price: 128)"))
}

fn mode(name: &'static str, value: &Json<'_>) -> Result<Mode, Misfit> {
    match value.as_str() {
        Some("L1") => Ok(Mode::L1),
        Some("L2") => Ok(Mode::L2),
        _ => Err(misfit(name, MODE)),
    }
}

fn resource_bounds(value: Json<'_>) -> Result<[Bound; 3], Misfit> {
    const SHAPE: Misfit = misfit(
        "resource_bounds",
        "l1_gas, l1_data_gas and l2_gas, each with max_amount and max_price_per_unit",
    );
    let bound = |resource: Json<'_>| {
        let members = resource.members(&["max_amount", "max_price_per_unit"]).map_err(|_| SHAPE)?;
        let [Some(amount), Some(price)] = members else { return Err(SHAPE) };
        Ok(Bound {
            max_amount: number("max_amount", &amount, 64)?,
            max_price_per_unit: number("max_price_per_unit", &price, 128)?,
        })
    };
    match value.members(&RESOURCES).map_err(|_| SHAPE)? {
        [Some(l1), Some(l1_data), Some(l2)] => Ok([bound(l1)?, bound(l1_data)?, bound(l2)?]),
        _ => Err(SHAPE),
    }
}

impl Transaction {
    /// Appends the transaction as a JSON object in canonical form.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.kind.write(out);
        text(out, "version", if self.query { QUERY_VERSION } else { "0x3" });
        name(out, "signature");
        write_felts(&self.signature, out);
        name(out, "nonce");
        write_felt(&self.nonce, out);
        name(out, "resource_bounds");
        for (separator, (resource, bound)) in
            [b'{', b',', b','].into_iter().zip(RESOURCES.into_iter().zip(&self.resource_bounds))
        {
            out.push(separator);
            quoted(out, resource);
            out.extend_from_slice(br#":{"max_amount":"#);
            hex(out, bound.max_amount);
            name(out, "max_price_per_unit");
            hex(out, bound.max_price_per_unit);
            out.push(b'}');
        }
        out.push(b'}');
        name(out, "tip");
        hex(out, self.tip);
        name(out, "paymaster_data");
        write_felts(&self.paymaster_data, out);
        text(out, "nonce_data_availability_mode", self.nonce_mode.name());
        text(out, "fee_data_availability_mode", self.fee_mode.name());
        out.push(b'}');
    }
}

impl Kind {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Invoke { sender_address, calldata, account_deployment_data } => {
                out.extend_from_slice(br#"{"type":"INVOKE","sender_address":"#);
                write_felt(sender_address, out);
                name(out, "calldata");
                write_felts(calldata, out);
                name(out, "account_deployment_data");
                write_felts(account_deployment_data, out);
            }
            Self::DeployAccount { class_hash, salt, constructor_calldata } => {
                out.extend_from_slice(br#"{"type":"DEPLOY_ACCOUNT","class_hash":"#);
                write_felt(class_hash, out);
                name(out, "contract_address_salt");
                write_felt(salt, out);
                name(out, "constructor_calldata");
                write_felts(constructor_calldata, out);
            }
        }
    }
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Self::L1 => "L1",
            Self::L2 => "L2",
        }
    }
}

fn name(out: &mut Vec<u8>, name: &str) {
    out.push(b',');
    quoted(out, name);
    out.push(b':');
}

fn text(out: &mut Vec<u8>, member: &str, value: &str) {
    name(out, member);
    quoted(out, value);
}

fn quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

fn hex(out: &mut Vec<u8>, number: HexNumber) {
    out.push(b'"');
    number.write(out);
    out.push(b'"');
}
