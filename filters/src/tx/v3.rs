//! A V3 transaction: its fields, hash and signature; and the transactions that the relay builds.
//!
//! `BROADCASTED_INVOKE_TXN_V3`, `BROADCASTED_DEPLOY_ACCOUNT_TXN_V3` and
//! `BROADCASTED_DECLARE_TXN_V3` of the Starknet API, without proof and proof facts, which are
//! refused. The hash is signed, and it identifies the transaction at the node: Starknet
//! documentation, "Transaction hash calculation, v3". It is a Poseidon hash over the kind's name,
//! the version, the sender, the fee fields, the chain, and the fields of the kind; the facts of a
//! proof would change it.

use super::calls::{self, Call};
use crate::felt::{Felt, ShortString, split};
use crate::secret::SecretKey;
use crate::stark::{contract_address, poseidon};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The version: 3, or 2^128 + 3 (`QUERY_BIT`) for a transaction that is only estimated.
const VERSION: u128 = 3;
const QUERY_BIT: [u64; 4] = [0, 1, 0, 3];

/// A V3 transaction; unsigned while its signature is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub(crate) kind: Kind,
    /// Whether the version is 2^128 + 3: such a transaction can be estimated, never submitted.
    pub(crate) query: bool,
    pub(crate) signature: Vec<Felt>,
    pub(crate) nonce: Felt,
    pub(crate) bounds: Bounds,
    pub(crate) tip: u64,
    pub(crate) paymaster_data: Vec<Felt>,
    pub(crate) nonce_mode: Mode,
    pub(crate) fee_mode: Mode,
}

/// The fields that only one kind of transaction has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Invoke {
        sender: Felt,
        calldata: Vec<Felt>,
        account_deployment_data: Vec<Felt>,
    },
    DeployAccount {
        class_hash: Felt,
        salt: Felt,
        constructor_calldata: Vec<Felt>,
    },
    /// Never parsed from a request: a class is larger than a request may be.
    Declare {
        sender: Felt,
        class_hash: Felt,
        compiled_class_hash: Felt,
        /// The class as JSON text.
        contract_class: String,
    },
}

/// For each resource: the highest amount that a transaction may use, and the highest price in fri.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// L1 gas.
    pub l1_gas: (u64, u128),
    /// L1 data gas.
    pub l1_data_gas: (u64, u128),
    /// L2 gas.
    pub l2_gas: (u64, u128),
}

impl Bounds {
    /// No bounds, for an estimate.
    pub const ZERO: Self = Self {
        l1_gas: (0, 0),
        l1_data_gas: (0, 0),
        l2_gas: (0, 0),
    };

    /// The highest possible cost, in fri; `None` beyond 128 bits.
    pub fn max_fee(&self) -> Option<u128> {
        [self.l1_gas, self.l1_data_gas, self.l2_gas]
            .into_iter()
            .try_fold(0_u128, |sum, (amount, price)| {
                u128::from(amount).checked_mul(price)?.checked_add(sum)
            })
    }
}

/// A data availability mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    L1,
    L2,
}

impl Transaction {
    /// A transaction without signature, tip and paymaster, and with its data on L1.
    fn unsigned(kind: Kind, nonce: Felt, bounds: Bounds) -> Self {
        Self {
            kind,
            query: false,
            signature: Vec::new(),
            nonce,
            bounds,
            tip: 0,
            paymaster_data: Vec::new(),
            nonce_mode: Mode::L1,
            fee_mode: Mode::L1,
        }
    }

    /// Turns the transaction into an unsigned one of the query version, which can only be
    /// estimated.
    pub fn query(self) -> Self {
        Self {
            query: true,
            signature: Vec::new(),
            ..self
        }
    }

    /// Signs the transaction for a chain.
    pub fn sign(self, chain_id: Felt, key: &SecretKey) -> Self {
        let hash = self.hash(chain_id);
        self.sign_hash(hash, key)
    }

    /// Signs the transaction by its hash for a chain.
    pub fn sign_hash(self, hash: Felt, key: &SecretKey) -> Self {
        Self {
            signature: key.sign(hash).to_vec(),
            ..self
        }
    }

    /// The account's nonce.
    pub fn nonce(&self) -> Felt {
        self.nonce
    }

    /// The resource bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The transaction's hash on a chain.
    pub fn hash(&self, chain_id: Felt) -> Felt {
        let version = match self.query {
            true => Felt::from_limbs(QUERY_BIT).unwrap_or(Felt::ZERO),
            false => Felt::from(VERSION),
        };
        let mut parts = Vec::with_capacity(12);
        parts.extend([self.kind.prefix(), version, self.sender(), self.fee()]);
        parts.extend([
            poseidon(&self.paymaster_data),
            chain_id,
            self.nonce,
            self.modes(),
        ]);
        match &self.kind {
            Kind::Invoke {
                calldata,
                account_deployment_data,
                ..
            } => {
                parts.extend([poseidon(account_deployment_data), poseidon(calldata)]);
            }
            Kind::DeployAccount {
                class_hash,
                salt,
                constructor_calldata,
            } => {
                parts.extend([poseidon(constructor_calldata), *class_hash, *salt]);
            }
            Kind::Declare {
                class_hash,
                compiled_class_hash,
                ..
            } => {
                parts.extend([poseidon(&[]), *class_hash, *compiled_class_hash]);
            }
        }
        poseidon(&parts)
    }

    /// The account that sends it; for a deployment, the address of the deployed account.
    pub fn sender(&self) -> Felt {
        match &self.kind {
            Kind::Invoke { sender, .. } | Kind::Declare { sender, .. } => *sender,
            Kind::DeployAccount {
                class_hash,
                salt,
                constructor_calldata,
            } => contract_address(Felt::ZERO, *salt, *class_hash, constructor_calldata),
        }
    }

    fn fee(&self) -> Felt {
        let Bounds {
            l1_gas,
            l1_data_gas,
            l2_gas,
        } = self.bounds;
        poseidon(&[
            Felt::from(self.tip),
            bound(*b"\0\0L1_GAS", l1_gas.0, l1_gas.1),
            bound(*b"\0\0L2_GAS", l2_gas.0, l2_gas.1),
            bound(*b"\0L1_DATA", l1_data_gas.0, l1_data_gas.1),
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
fn bound(name: [u8; 8], max_amount: u64, max_price: u128) -> Felt {
    let [high, low] = split(max_price);
    let limbs = [u64::from_be_bytes(name), max_amount, high, low];
    Felt::from_limbs(limbs).expect("a name of 7 bytes leaves the felt below 2^248")
}

/// A transaction of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoke {
    /// The account.
    pub sender: Felt,
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// The account's next nonce.
    pub nonce: Felt,
    /// The resource bounds.
    pub bounds: Bounds,
}

/// The first transaction of an account: it deploys itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployAccount {
    /// The account's class.
    pub class_hash: Felt,
    /// The key that controls it, and from which its address follows.
    pub public_key: Felt,
    /// The resource bounds.
    pub bounds: Bounds,
}

/// A transaction that declares a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declare {
    /// The account.
    pub sender: Felt,
    /// The hash of the class.
    pub class_hash: Felt,
    /// The hash of the compiled class.
    pub compiled_class_hash: Felt,
    /// The class as JSON text, written verbatim.
    pub contract_class: String,
    /// The account's next nonce.
    pub nonce: Felt,
    /// The resource bounds.
    pub bounds: Bounds,
}

impl From<Invoke> for Transaction {
    fn from(invoke: Invoke) -> Self {
        let kind = Kind::Invoke {
            sender: invoke.sender,
            calldata: calls::encode(&invoke.calls),
            account_deployment_data: Vec::new(),
        };
        Self::unsigned(kind, invoke.nonce, invoke.bounds)
    }
}

impl From<DeployAccount> for Transaction {
    fn from(deploy: DeployAccount) -> Self {
        let kind = Kind::DeployAccount {
            class_hash: deploy.class_hash,
            salt: deploy.public_key,
            constructor_calldata: vec![deploy.public_key],
        };
        Self::unsigned(kind, Felt::ZERO, deploy.bounds)
    }
}

impl From<Declare> for Transaction {
    fn from(declare: Declare) -> Self {
        let kind = Kind::Declare {
            sender: declare.sender,
            class_hash: declare.class_hash,
            compiled_class_hash: declare.compiled_class_hash,
            contract_class: declare.contract_class,
        };
        Self::unsigned(kind, declare.nonce, declare.bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fee_sums_over_the_resources() {
        let bounds = Bounds {
            l1_gas: (2, 3),
            l1_data_gas: (5, 7),
            l2_gas: (11, 13),
        };
        assert_eq!(bounds.max_fee(), Some(6 + 35 + 143));
        assert_eq!(
            Bounds {
                l1_gas: (2, u128::MAX),
                ..bounds
            }
            .max_fee(),
            None,
            "a product"
        );
        let sum = Bounds {
            l1_gas: (1, u128::MAX),
            l2_gas: (1, 1),
            ..Bounds::ZERO
        };
        assert_eq!(sum.max_fee(), None, "a sum");
    }

    fn transaction() -> Transaction {
        let (sender, calldata) = (Felt::from(1_u64), Vec::new());
        let kind = Kind::Invoke {
            sender,
            calldata,
            account_deployment_data: Vec::new(),
        };
        Transaction::unsigned(kind, Felt::ZERO, Bounds::ZERO)
    }

    #[test]
    fn each_data_availability_mode_has_a_bit() {
        for (nonce_mode, fee_mode, felt) in [
            (Mode::L1, Mode::L1, "0x0"),
            (Mode::L1, Mode::L2, "0x1"),
            (Mode::L2, Mode::L1, "0x100000000"),
            (Mode::L2, Mode::L2, "0x100000001"),
        ] {
            let modes = Transaction {
                nonce_mode,
                fee_mode,
                ..transaction()
            }
            .modes();
            assert_eq!(modes.to_string(), felt, "{nonce_mode:?}, {fee_mode:?}");
        }
    }

    #[test]
    fn what_is_only_estimated_is_never_signed() {
        let signed = Transaction {
            signature: vec![Felt::ZERO],
            ..transaction()
        };
        assert_eq!(
            signed.clone().query(),
            Transaction {
                query: true,
                ..transaction()
            }
        );
        assert_ne!(signed.hash(Felt::ZERO), signed.query().hash(Felt::ZERO));
    }
}
