//! A transaction as JSON in canonical form: equal transactions are equal bytes.

use super::parse::{QUERY_VERSION, RESOURCES};
use super::{Bounds, Kind, Mode, Transaction};
use crate::felt::Felt;
use crate::rpc::values::{write_felt, write_felts, write_plain};
use alloc::string::String;
use alloc::vec::Vec;

impl Transaction {
    /// Appends the transaction as a JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.kind.write(out);
        text(out, "version", if self.query { QUERY_VERSION } else { "0x3" });
        list(out, "signature", &self.signature);
        felt(out, "nonce", self.nonce);
        name(out, "resource_bounds");
        self.bounds.write(out);
        felt(out, "tip", self.tip);
        list(out, "paymaster_data", &self.paymaster_data);
        text(out, "nonce_data_availability_mode", self.nonce_mode.name());
        text(out, "fee_data_availability_mode", self.fee_mode.name());
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

/// The text that `write` appends.
pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("only text is written")
}

impl Kind {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Invoke { sender, calldata, account_deployment_data } => {
                out.extend_from_slice(br#"{"type":"INVOKE""#);
                felt(out, "sender_address", *sender);
                list(out, "calldata", calldata);
                list(out, "account_deployment_data", account_deployment_data);
            }
            Self::DeployAccount { class_hash, salt, constructor_calldata } => {
                out.extend_from_slice(br#"{"type":"DEPLOY_ACCOUNT""#);
                felt(out, "class_hash", *class_hash);
                felt(out, "contract_address_salt", *salt);
                list(out, "constructor_calldata", constructor_calldata);
            }
            Self::Declare { sender, compiled_class_hash, contract_class, .. } => {
                out.extend_from_slice(br#"{"type":"DECLARE""#);
                felt(out, "sender_address", *sender);
                felt(out, "compiled_class_hash", *compiled_class_hash);
                name(out, "contract_class");
                out.extend_from_slice(contract_class.as_bytes());
                list(out, "account_deployment_data", &[]);
            }
        }
    }
}

impl Bounds {
    fn write(&self, out: &mut Vec<u8>) {
        let bounds = [self.l1_gas, self.l1_data_gas, self.l2_gas];
        for (separator, (resource, (max_amount, max_price))) in
            [b'{', b',', b','].into_iter().zip(RESOURCES.into_iter().zip(bounds))
        {
            out.push(separator);
            write_plain(resource, out);
            out.extend_from_slice(br#":{"max_amount":"#);
            write_felt(&Felt::from(max_amount), out);
            felt(out, "max_price_per_unit", max_price);
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

fn name(out: &mut Vec<u8>, name: &str) {
    out.push(b',');
    write_plain(name, out);
    out.push(b':');
}

fn text(out: &mut Vec<u8>, member: &str, value: &str) {
    name(out, member);
    write_plain(value, out);
}

fn felt(out: &mut Vec<u8>, member: &str, value: impl Into<Felt>) {
    name(out, member);
    write_felt(&value.into(), out);
}

fn list(out: &mut Vec<u8>, member: &str, felts: &[Felt]) {
    name(out, member);
    write_felts(felts, out);
}
