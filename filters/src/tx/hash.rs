//! The hash of a transaction: what is signed, and how the node identifies it.
//!
//! Starknet documentation, "Transaction hash calculation, v3": a Poseidon hash over the kind's
//! name, the version, the sender, the fee fields, the chain, and the fields of the kind. The facts
//! of a proof would change it, but no transaction with a proof is accepted here.

use super::{Bounds, Kind, Mode, Transaction};
use crate::felt::{Felt, ShortString, split};
use crate::stark::{contract_address, poseidon};
use alloc::vec::Vec;

/// 3, and 2^128 + 3 for a transaction that is only estimated.
const VERSION: u128 = 3;
const QUERY_BIT: [u64; 4] = [0, 1, 0, 3];

impl Transaction {
    /// The transaction's hash on a chain.
    pub fn hash(&self, chain_id: Felt) -> Felt {
        let version = match self.query {
            true => Felt::from_limbs(QUERY_BIT).unwrap_or(Felt::ZERO),
            false => Felt::from(VERSION),
        };
        let mut parts = Vec::with_capacity(12);
        parts.extend([self.kind.prefix(), version, self.sender(), self.fee()]);
        parts.extend([poseidon(&self.paymaster_data), chain_id, self.nonce, self.modes()]);
        match &self.kind {
            Kind::Invoke { calldata, account_deployment_data, .. } => {
                parts.extend([poseidon(account_deployment_data), poseidon(calldata)]);
            }
            Kind::DeployAccount { class_hash, salt, constructor_calldata } => {
                parts.extend([poseidon(constructor_calldata), *class_hash, *salt]);
            }
            Kind::Declare { class_hash, compiled_class_hash, .. } => {
                parts.extend([poseidon(&[]), *class_hash, *compiled_class_hash]);
            }
        }
        poseidon(&parts)
    }

    /// The account that sends it; of one that deploys its account, the account's address.
    pub fn sender(&self) -> Felt {
        match &self.kind {
            Kind::Invoke { sender, .. } | Kind::Declare { sender, .. } => *sender,
            Kind::DeployAccount { class_hash, salt, constructor_calldata } => {
                contract_address(Felt::ZERO, *salt, *class_hash, constructor_calldata)
            }
        }
    }

    fn fee(&self) -> Felt {
        let Bounds { l1_gas, l1_data_gas, l2_gas } = self.bounds;
        poseidon(&[
            Felt::from(self.tip),
            bound(*b"\0\0L1_GAS", l1_gas),
            bound(*b"\0\0L2_GAS", l2_gas),
            bound(*b"\0L1_DATA", l1_data_gas),
        ])
    }

    /// Both data availability modes in one felt, 32 bits each.
    fn modes(&self) -> Felt {
        let bit = |mode| u64::from(mode == Mode::L2);
        Felt::from(bit(self.nonce_mode).wrapping_shl(32) | bit(self.fee_mode))
    }
}

impl Kind {
    fn prefix(&self) -> Felt {
        let name = match self {
            Self::Invoke { .. } => "invoke",
            Self::DeployAccount { .. } => "deploy_account",
            Self::Declare { .. } => "declare",
        };
        ShortString::parse(name).map_or(Felt::ZERO, |name| name.felt())
    }
}

/// A resource's bound in one felt: its name of at most 7 bytes, 64 bits of amount, 128 of price.
fn bound(name: [u8; 8], (max_amount, max_price): (u64, u128)) -> Felt {
    let [high, low] = split(max_price);
    let limbs = [u64::from_be_bytes(name), max_amount, high, low];
    Felt::from_limbs(limbs).expect("a name of 7 bytes leaves the felt below 2^248")
}
