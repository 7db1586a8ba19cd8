//! The calls that users may sign: the pinned contracts, their entrypoints, and a rule for the
//! arguments of each.
//!
//! Contract and entrypoint count as a pair: an ERC-20's `transfer` has the selector of a card's.
//! Every entrypoint belongs to one contract here, so the list of pairs is [`Entrypoint::contract`].

use super::calls::Call;
use super::cursor::Cursor;
use crate::felt::{Felt, U256};
use crate::named::named;
use crate::stark::selector;
use crate::verdict::{Reason, Refusal};
use Entrypoint::{
    Approve, BridgeOutCard, BridgeOutToken, Burn, Delegate, ExitValidator, IncreaseSelfStake,
    RegisterValidator, RequestUndelegate, Transfer, Withdraw,
};
use alloc::format;
use alloc::string::String;

/// 10,000 basis points: a commission of 100 %.
const MAX_BASIS_POINTS: u64 = 10_000;

named! {
    /// A pinned contract, by its role in the product.
    pub enum Contract {
        /// The native token.
        Token = "token",
        /// The staking pool.
        Staking = "staking",
        /// The bridge adapter.
        Bridge = "bridge",
        /// The card NFTs.
        Card = "card",
        /// The identity registry.
        Registry = "registry",
        /// The usership results.
        Usership = "usership",
    }
}

/// The addresses of the pinned contracts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contracts {
    /// The native token.
    pub token: Felt,
    /// The staking pool.
    pub staking: Felt,
    /// The bridge adapter.
    pub bridge: Felt,
    /// The card NFTs.
    pub card: Felt,
    /// The identity registry.
    pub registry: Felt,
    /// The usership results.
    pub usership: Felt,
}

impl Contracts {
    /// The address of a contract.
    pub fn address(&self, contract: Contract) -> Felt {
        match contract {
            Contract::Token => self.token,
            Contract::Staking => self.staking,
            Contract::Bridge => self.bridge,
            Contract::Card => self.card,
            Contract::Registry => self.registry,
            Contract::Usership => self.usership,
        }
    }

    /// The contract at an address, if it is one of them.
    pub fn at(&self, address: Felt) -> Option<Contract> {
        Contract::ALL
            .into_iter()
            .find(|contract| self.address(*contract) == address)
    }
}

named! {
    /// An entrypoint that users may call; its selector is computed from its name.
    #[expect(missing_docs, reason = "each is the entrypoint of its name")]
    pub enum Entrypoint {
        Approve = "approve",
        RegisterValidator = "register_validator",
        IncreaseSelfStake = "increase_self_stake",
        Delegate = "delegate",
        RequestUndelegate = "request_undelegate",
        Withdraw = "withdraw",
        ExitValidator = "exit_validator",
        BridgeOutToken = "bridge_out_token",
        BridgeOutCard = "bridge_out_card",
        Transfer = "transfer",
        Burn = "burn",
    }
}

impl Entrypoint {
    /// The one contract on which it may be called.
    pub const fn contract(self) -> Contract {
        match self {
            Approve => Contract::Token,
            RegisterValidator | IncreaseSelfStake | Delegate | RequestUndelegate | Withdraw
            | ExitValidator => Contract::Staking,
            BridgeOutToken | BridgeOutCard => Contract::Bridge,
            Transfer | Burn => Contract::Card,
        }
    }

    /// Describes the expected arguments, for the refusal of others.
    const fn expected(self) -> &'static str {
        match self {
            Approve => "the staking pool or the bridge adapter, and an amount",
            RegisterValidator => "at most 10000 basis points, and an amount",
            IncreaseSelfStake => "an amount that is not zero",
            Delegate | RequestUndelegate => "a validator's address, and an amount that is not zero",
            Withdraw | ExitValidator => "none",
            BridgeOutToken => "an address on L1, and an amount that is not zero",
            BridgeOutCard => "an address on L1, and a card",
            Transfer => "an address, and a card",
            Burn => "a card",
        }
    }

    /// Reads all arguments; `None` if one is malformed or not permitted.
    fn check(self, mut args: Cursor<'_>, contracts: &Contracts) -> Option<()> {
        match self {
            Approve => {
                let spender = contracts.at(args.take()?)?;
                matches!(spender, Contract::Staking | Contract::Bridge).then_some(())?;
                number(&mut args)?;
            }
            RegisterValidator => {
                args.take()?
                    .to_u64()
                    .filter(|points| *points <= MAX_BASIS_POINTS)?;
                number(&mut args)?;
            }
            IncreaseSelfStake => positive(&mut args)?,
            Delegate | RequestUndelegate => {
                address(&mut args)?;
                positive(&mut args)?;
            }
            Withdraw | ExitValidator => {}
            BridgeOutToken => {
                l1_address(&mut args)?;
                positive(&mut args)?;
            }
            BridgeOutCard => {
                l1_address(&mut args)?;
                number(&mut args)?;
            }
            Transfer => {
                address(&mut args)?;
                number(&mut args)?;
            }
            Burn => {
                number(&mut args)?;
            }
        }
        args.finish()
    }
}

fn number(args: &mut Cursor<'_>) -> Option<U256> {
    U256::from_felts(args.take()?, args.take()?)
}

fn positive(args: &mut Cursor<'_>) -> Option<()> {
    number(args)
        .filter(|number| *number != U256::ZERO)
        .map(drop)
}

fn address(args: &mut Cursor<'_>) -> Option<()> {
    args.take()?.is_address().then_some(())
}

/// Reads an L1 address: at most 160 bits, and not zero, which would burn.
fn l1_address(args: &mut Cursor<'_>) -> Option<()> {
    let address = args.take()?;
    let [0, high, _, _] = address.limbs() else {
        return None;
    };
    (address != Felt::ZERO && u32::try_from(high).is_ok()).then_some(())
}

/// Names of entrypoints that users may not call, for the refusal of a call: those of the product's
/// contracts, of accounts, and of common tokens.
const KNOWN: [&str; 40] = [
    "approve",
    "attest",
    "attest_v2",
    "burn",
    "burn_from",
    "claim",
    "decrease_allowance",
    "decreaseAllowance",
    "deposit",
    "increase_allowance",
    "increaseAllowance",
    "initialize",
    "mint",
    "permissioned_mint",
    "recovery_cancel",
    "recovery_execute",
    "recovery_propose",
    "register_identity",
    "renounce_ownership",
    "require_v2",
    "revoke",
    "safe_transfer_from",
    "safeTransferFrom",
    "set_approval_for_all",
    "set_bridge",
    "set_minter",
    "set_public_key",
    "setApprovalForAll",
    "setPublicKey",
    "slash",
    "stake",
    "submit_usership",
    "swap",
    "transfer",
    "transfer_from",
    "transfer_ownership",
    "transferFrom",
    "upgrade",
    "wire",
    "withdraw",
];

/// The name of an entrypoint with this selector, or else the selector.
fn entrypoint_name(of: Felt) -> String {
    let allowed = Entrypoint::ALL.into_iter().map(Entrypoint::name);
    let mut names = allowed.chain(KNOWN);
    match names.find(|name| selector(name) == of) {
        Some(name) => name.into(),
        None => format!("selector {of}"),
    }
}

/// A permitted call: on the list, with arguments that match its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedCall {
    contract: Contract,
    entrypoint: Entrypoint,
    call: Call,
}

impl AllowedCall {
    /// Judges a call.
    ///
    /// # Errors
    /// Returns `contract_not_allowed`, `entrypoint_not_allowed` or `argument_not_allowed`.
    pub(crate) fn judge(call: Call, contracts: &Contracts) -> Result<Self, Refusal> {
        let contract = contracts.at(call.to).ok_or_else(|| {
            let message = format!("{} is not a contract that users may call", call.to);
            Refusal::new(Reason::ContractNotAllowed, message)
        })?;
        let entrypoint = Entrypoint::ALL.into_iter().find(|entrypoint| {
            entrypoint.contract() == contract && selector(entrypoint.name()) == call.selector
        });
        let entrypoint = entrypoint.ok_or_else(|| {
            let message = format!(
                "users may not call {} of the {} contract",
                entrypoint_name(call.selector),
                contract.name()
            );
            Refusal::new(Reason::EntrypointNotAllowed, message)
        })?;
        entrypoint
            .check(Cursor::new(&call.args), contracts)
            .ok_or_else(|| {
                let (name, expected) = (entrypoint.name(), entrypoint.expected());
                let message = format!("the arguments of {name} must be {expected}");
                Refusal::new(Reason::ArgumentNotAllowed, message)
            })?;
        Ok(Self {
            contract,
            entrypoint,
            call,
        })
    }

    /// The contract.
    pub fn contract(&self) -> Contract {
        self.contract
    }

    /// The entrypoint.
    pub fn entrypoint(&self) -> Entrypoint {
        self.entrypoint
    }

    /// The call.
    pub fn call(&self) -> &Call {
        &self.call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_is_named_where_it_is_known() {
        for (name, expected) in [
            (
                "transfer",
                "users may not call transfer of the token contract",
            ),
            (
                "transferFrom",
                "users may not call transferFrom of the token contract",
            ),
            (
                "delegate",
                "users may not call delegate of the token contract",
            ),
            (
                "upgrade",
                "users may not call upgrade of the token contract",
            ),
            ("no_such_entrypoint", "users may not call selector 0x"),
        ] {
            let [token, staking, bridge, card, registry, usership] =
                [1_u64, 2, 3, 4, 5, 6].map(Felt::from);
            let contracts = Contracts {
                token,
                staking,
                bridge,
                card,
                registry,
                usership,
            };
            let call = Call {
                to: token,
                selector: selector(name),
                args: Vec::new(),
            };
            let refusal = AllowedCall::judge(call, &contracts).expect_err("it is not allowed");
            assert!(refusal.message.starts_with(expected), "{}", refusal.message);
        }
    }
}
