//! A transaction as JSON: parsed from a request, and written in canonical form.
//!
//! One parser serves estimates and writes, so that neither accepts what the other does not
//! understand: INVOKE or DEPLOY_ACCOUNT with exactly their fields. [`crate::policy`] judges what
//! only the write path refuses (a tip, the query version…). DECLARE is refused, because a class is
//! larger than a request may be. Equal transactions are written as equal bytes.

use super::{Bounds, Kind, Mode, Transaction};
use crate::felt::Felt;
use crate::rpc::ParamError::{self, Malformed};
use crate::rpc::json::{
    FELT, Json, MemberError, felt, felts, write_felt, write_felts, write_plain,
};
use alloc::string::String;
use alloc::vec::Vec;

/// The version of a transaction that is only estimated: 2^128 + 3.
const QUERY_VERSION: &str = "0x100000000000000000000000000000003";
/// The names of the resources in `resource_bounds`.
const RESOURCES: [&str; 3] = ["l1_gas", "l1_data_gas", "l2_gas"];

const SHAPE: ParamError = Malformed(
    "request",
    "INVOKE or DEPLOY_ACCOUNT of version 3 with exactly its fields; no DECLARE, no proofs",
);

/// The number of fields that both kinds have.
const COMMON: usize = 9;
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

/// Why the parser refuses a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransactionError {
    /// The version is another one, which may have other fields.
    Version,
    /// The transaction has a field for a proof.
    Proof,
    /// The name of a field that neither kind has.
    Unknown(String),
    /// A field is missing, appears twice, or is malformed.
    Field(ParamError),
}

impl From<ParamError> for TransactionError {
    fn from(error: ParamError) -> Self {
        Self::Field(error)
    }
}

/// Converts to the error of an estimate.
impl From<TransactionError> for ParamError {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Version => {
                Malformed("version", "0x3 or 0x100000000000000000000000000000003")
            }
            TransactionError::Proof | TransactionError::Unknown(_) => SHAPE,
            TransactionError::Field(error) => error,
        }
    }
}

impl Transaction {
    /// Parses a transaction. Only the length of the request bounds the length of its lists.
    ///
    /// # Errors
    /// Returns the first error found.
    pub(crate) fn parse(value: Json<'_>) -> Result<Self, TransactionError> {
        let query = match value.get("version").map(Json::as_str) {
            Some(Some("0x3")) => false,
            Some(Some(QUERY_VERSION)) => true,
            Some(Some(_)) => return Err(TransactionError::Version),
            Some(None) => return Err(Malformed("version", "a string").into()),
            None if matches!(value, Json::Object(_)) => {
                return Err(ParamError::Missing("version").into());
            }
            None => return Err(SHAPE.into()),
        };
        if value.get("proof").is_some() || value.get("proof_facts").is_some() {
            return Err(TransactionError::Proof);
        }
        if let Some(unknown) = value.other_than(&FIELDS) {
            return Err(TransactionError::Unknown(unknown));
        }
        let fields = value.members(&FIELDS).map_err(|error| match error {
            MemberError::Duplicate(name) => ParamError::Duplicate(name),
            MemberError::Unknown | MemberError::NotAnObject => SHAPE,
        })?;
        let mut common = fields.iter().zip(FIELDS).take(COMMON);
        if let Some((_, name)) = common.find(|(field, _)| field.is_none()) {
            return Err(ParamError::Missing(name).into());
        }
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

    /// Appends the transaction as a JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.kind.write(out);
        put_text(
            out,
            "version",
            if self.query { QUERY_VERSION } else { "0x3" },
        );
        put_list(out, "signature", &self.signature);
        put_felt(out, "nonce", self.nonce);
        put_name(out, "resource_bounds");
        self.bounds.write(out);
        put_felt(out, "tip", self.tip);
        put_list(out, "paymaster_data", &self.paymaster_data);
        put_text(out, "nonce_data_availability_mode", self.nonce_mode.name());
        put_text(out, "fee_data_availability_mode", self.fee_mode.name());
        out.push(b'}');
    }

    /// Appends the parameters, by name, of the method that submits it.
    pub fn write_params(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.kind {
            Kind::Invoke { .. } => br#"{"invoke_transaction":"#,
            Kind::DeployAccount { .. } => br#"{"deploy_account_transaction":"#,
            Kind::Declare { .. } => br#"{"declare_transaction":"#,
        });
        self.write(out);
        out.push(b'}');
    }

    /// The transaction as a JSON object.
    pub fn to_json(&self) -> String {
        written(|out| self.write(out))
    }

    /// The parameters, by name, of the method that submits it.
    pub fn to_params(&self) -> String {
        written(|out| self.write_params(out))
    }
}

/// Parses the fields of one kind: all of its own must be present, and none of the other's.
fn kind(type_: &Json<'_>, own: [Option<Json<'_>>; 6]) -> Result<Kind, ParamError> {
    let names = FIELDS.into_iter().skip(COMMON);
    for (at, (field, name)) in own.iter().zip(names).enumerate() {
        match (type_.as_str(), at < 3) {
            (Some("INVOKE"), true) | (Some("DEPLOY_ACCOUNT"), false) if field.is_none() => {
                return Err(ParamError::Missing(name));
            }
            (Some("INVOKE"), false) if field.is_some() => {
                return Err(Malformed(name, "absent from an INVOKE"));
            }
            (Some("DEPLOY_ACCOUNT"), true) if field.is_some() => {
                return Err(Malformed(name, "absent from a DEPLOY_ACCOUNT"));
            }
            _ => {}
        }
    }
    match (type_.as_str(), own) {
        (
            Some("INVOKE"),
            [
                Some(sender),
                Some(calldata),
                Some(deployment),
                None,
                None,
                None,
            ],
        ) => Ok(Kind::Invoke {
            sender: one("sender_address", &sender)?,
            calldata: list("calldata", &calldata)?,
            account_deployment_data: list("account_deployment_data", &deployment)?,
        }),
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

fn one(name: &'static str, value: &Json<'_>) -> Result<Felt, ParamError> {
    felt(value).ok_or(Malformed(name, FELT))
}

fn list(name: &'static str, value: &Json<'_>) -> Result<Vec<Felt>, ParamError> {
    felts(value).ok_or(Malformed(name, "an array of felts"))
}

fn amount(name: &'static str, value: &Json<'_>) -> Result<u64, ParamError> {
    let amount = felt(value).and_then(|felt| felt.to_u64());
    amount.ok_or(Malformed(name, "a hexadecimal number of at most 64 bits"))
}

fn price(name: &'static str, value: &Json<'_>) -> Result<u128, ParamError> {
    let price = felt(value).and_then(|felt| felt.to_u128());
    price.ok_or(Malformed(name, "a hexadecimal number of at most 128 bits"))
}

fn mode(name: &'static str, value: &Json<'_>) -> Result<Mode, ParamError> {
    match value.as_str() {
        Some("L1") => Ok(Mode::L1),
        Some("L2") => Ok(Mode::L2),
        _ => Err(Malformed(name, "L1 or L2")),
    }
}

fn resource_bounds(value: Json<'_>) -> Result<Bounds, ParamError> {
    const SHAPE: ParamError = Malformed(
        "resource_bounds",
        "l1_gas, l1_data_gas and l2_gas, each with max_amount and max_price_per_unit",
    );
    let bound = |resource: Json<'_>| {
        let members = resource
            .members(&["max_amount", "max_price_per_unit"])
            .map_err(|_| SHAPE)?;
        let [Some(max_amount), Some(max_price)] = members else {
            return Err(SHAPE);
        };
        Ok((
            amount("max_amount", &max_amount)?,
            price("max_price_per_unit", &max_price)?,
        ))
    };
    match value.members(&RESOURCES).map_err(|_| SHAPE)? {
        [Some(l1), Some(l1_data), Some(l2)] => Ok(Bounds {
            l1_gas: bound(l1)?,
            l1_data_gas: bound(l1_data)?,
            l2_gas: bound(l2)?,
        }),
        _ => Err(SHAPE),
    }
}

/// The text that `write` appends.
pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("only text is written")
}

impl Kind {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Invoke {
                sender,
                calldata,
                account_deployment_data,
            } => {
                out.extend_from_slice(br#"{"type":"INVOKE""#);
                put_felt(out, "sender_address", *sender);
                put_list(out, "calldata", calldata);
                put_list(out, "account_deployment_data", account_deployment_data);
            }
            Self::DeployAccount {
                class_hash,
                salt,
                constructor_calldata,
            } => {
                out.extend_from_slice(br#"{"type":"DEPLOY_ACCOUNT""#);
                put_felt(out, "class_hash", *class_hash);
                put_felt(out, "contract_address_salt", *salt);
                put_list(out, "constructor_calldata", constructor_calldata);
            }
            Self::Declare {
                sender,
                compiled_class_hash,
                contract_class,
                ..
            } => {
                out.extend_from_slice(br#"{"type":"DECLARE""#);
                put_felt(out, "sender_address", *sender);
                put_felt(out, "compiled_class_hash", *compiled_class_hash);
                put_name(out, "contract_class");
                out.extend_from_slice(contract_class.as_bytes());
                put_list(out, "account_deployment_data", &[]);
            }
        }
    }
}

impl Bounds {
    fn write(&self, out: &mut Vec<u8>) {
        let bounds = [self.l1_gas, self.l1_data_gas, self.l2_gas];
        for (separator, (resource, (max_amount, max_price))) in [b'{', b',', b',']
            .into_iter()
            .zip(RESOURCES.into_iter().zip(bounds))
        {
            out.push(separator);
            write_plain(resource, out);
            out.extend_from_slice(br#":{"max_amount":"#);
            write_felt(&Felt::from(max_amount), out);
            put_felt(out, "max_price_per_unit", max_price);
            out.push(b'}');
        }
        out.push(b'}');
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

fn put_name(out: &mut Vec<u8>, name: &str) {
    out.push(b',');
    write_plain(name, out);
    out.push(b':');
}

fn put_text(out: &mut Vec<u8>, member: &str, value: &str) {
    put_name(out, member);
    write_plain(value, out);
}

fn put_felt(out: &mut Vec<u8>, member: &str, value: impl Into<Felt>) {
    put_name(out, member);
    write_felt(&value.into(), out);
}

fn put_list(out: &mut Vec<u8>, member: &str, felts: &[Felt]) {
    put_name(out, member);
    write_felts(felts, out);
}
