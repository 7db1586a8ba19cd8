//! The node's answers, as the write path reads them.

use crate::felt::Felt;
use crate::ledger::Inclusion;
use crate::verdict::Refusal;
use alloc::string::String;
use alloc::vec::Vec;

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// No verified answer.
    NoAnswer {
        /// The name of the cause, for the journal.
        cause: &'static str,
        /// Whether it is certain that the node did not receive the request.
        is_unsent: bool,
        /// The refusal of the request that needed the call.
        refusal: Refusal,
    },
    /// The node answered with an error.
    Returned(ErrorObject),
    /// The result does not match the method.
    MalformedAnswer,
}

/// An error of the node: Starknet API, `components/errors`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorObject {
    /// Its code.
    pub code: i64,
    /// The contract's own short text, if an execution failed.
    pub short_reason: Option<String>,
}

/// The error codes that the write path distinguishes.
pub mod code {
    /// An error of `starknet-devnet` itself; on another node it may mean anything.
    pub const DEVNET: i64 = -1;
    /// The node does not have the method (JSON-RPC 2.0, section 5.1).
    pub const METHOD_NOT_FOUND: i64 = -32_601;
    /// No block of this id.
    pub const BLOCK_NOT_FOUND: i64 = 24;
    /// No contract at the address.
    pub const CONTRACT_NOT_FOUND: i64 = 20;
    /// No transaction of this hash.
    pub const TRANSACTION_NOT_FOUND: i64 = 29;
    /// A call reverted.
    pub const CONTRACT_ERROR: i64 = 40;
    /// A simulated transaction reverted.
    pub const EXECUTION_ERROR: i64 = 41;
    /// The nonce is not the account's next one.
    pub const INVALID_NONCE: i64 = 52;
    /// The resource bounds or the balance do not cover the fee.
    pub const INSUFFICIENT_BOUNDS: i64 = 53;
    /// The account cannot pay for its bounds.
    pub const INSUFFICIENT_BALANCE: i64 = 54;
    /// The account's `__validate__` refused.
    pub const VALIDATION_FAILURE: i64 = 55;
    /// The class is declared already.
    pub const CLASS_ALREADY_DECLARED: i64 = 51;
    /// The node knows the transaction already.
    pub const DUPLICATE: i64 = 59;
}

impl ErrorObject {
    /// Whether the chain refuses what was read, called or estimated: an execution that reverts, or
    /// a transaction that it would not take. Anything else is a failure of the node, or of a read
    /// of it: another URL, or the same one soon, may give a result.
    #[must_use]
    pub const fn is_of_chain(&self) -> bool {
        matches!(
            self.code,
            code::CONTRACT_ERROR | code::EXECUTION_ERROR | 50..=62 | 64..=69 | code::DEVNET
        )
    }

    /// Whether a transaction with this error was certainly not accepted: true for the errors of the
    /// write methods and of a malformed request, false for an internal error.
    #[must_use]
    pub const fn is_definite(&self) -> bool {
        matches!(self.code, 50..=62 | 64..=69 | code::DEVNET | -32604 | -32602..=-32600 | -32700)
    }
}

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub number: u64,
    /// Its hash.
    pub hash: Felt,
    /// Seconds since 1970.
    pub timestamp: u64,
}

/// An accepted block, with the transactions that it lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBlock {
    /// Its hash.
    pub hash: Felt,
    /// Its transactions.
    pub transactions: Vec<Felt>,
}

/// The account that sent a transaction, and its nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The address of the account; that of the new account for a deployment.
    pub account: Felt,
    /// The nonce.
    pub nonce: u64,
}

/// A transaction's receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Whether its block is accepted, not still being built.
    pub accepted: bool,
    /// Success, or the contract's short reason, if it stated one.
    pub outcome: Result<(), Option<String>>,
    /// The fee in fri, if it is stated in that unit.
    pub fee: Option<u128>,
    /// Number and hash of its block, if it is accepted and the receipt states them.
    pub block: Option<(u64, Felt)>,
}

impl Receipt {
    /// Its block, as the journal stores it.
    pub(super) fn inclusion(&self) -> Option<Inclusion> {
        let (number, hash) = self.block?;
        Some(Inclusion {
            number,
            fingerprint: hash.to_bytes_be(),
        })
    }
}

/// Parses the token balance of an account, in fri. The view returns a `u256`; it is capped at 128
/// bits, since no larger amount exists. `None` if the result has another form.
#[must_use]
pub fn token_balance(result: &[Felt]) -> Option<u128> {
    let [low, high] = result else { return None };
    if *high != Felt::ZERO {
        return Some(u128::MAX);
    }
    low.to_u128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_definite_unless_the_node_may_have_taken_the_transaction() {
        let is_definite = |code| {
            ErrorObject {
                code,
                short_reason: None,
            }
            .is_definite()
        };
        for code in [
            50,
            52,
            55,
            62,
            64,
            69,
            code::DEVNET,
            code::METHOD_NOT_FOUND,
            -32604,
            -32602,
            -32600,
            -32700,
        ] {
            assert!(is_definite(code), "{code}");
        }
        for code in [0, 1, 40, 49, 63, 70, -2, -32603, -32605, -32599, -32000] {
            assert!(!is_definite(code), "{code}");
        }
    }

    #[test]
    fn a_receipt_with_a_block_says_where_it_was_included() {
        let hash = Felt::from(0x1234_u64);
        let block = Some((7, hash));
        let receipt = Receipt {
            accepted: true,
            outcome: Ok(()),
            fee: None,
            block,
        };
        let expected = Inclusion {
            number: 7,
            fingerprint: hash.to_bytes_be(),
        };
        assert_eq!(receipt.inclusion(), Some(expected));
        assert_eq!(
            Receipt {
                block: None,
                ..receipt
            }
            .inclusion(),
            None
        );
    }

    #[test]
    fn a_balance_is_two_halves_and_capped() {
        let balance = |felts: &[u128]| {
            token_balance(&felts.iter().copied().map(Felt::from).collect::<Vec<_>>())
        };
        assert_eq!(balance(&[5, 0]), Some(5));
        assert_eq!(balance(&[u128::MAX, 0]), Some(u128::MAX));
        assert_eq!(balance(&[5, 1]), Some(u128::MAX));
        for malformed in [&[][..], &[5], &[5, 0, 0]] {
            assert_eq!(balance(malformed), None, "{malformed:?}");
        }
    }
}
