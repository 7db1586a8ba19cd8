//! A policy, an account and its transactions, for the tests in this folder.

use portcullis_filters::bearer::Tokens;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::felt::Felt;
use portcullis_filters::operations::OperationKind;
use portcullis_filters::policy::{
    Caps, Contracts, Endpoint, Inspected, RelayPolicy, TransactionPermit,
};
use portcullis_filters::secret::{Secret, SecretKey};
use portcullis_filters::tx::{
    Account, Bounds, Call, Invoke, Transaction, account_address, selector,
};
use portcullis_filters::verdict::{Reason, Refusal};

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const CLASS: &str = "0x5b4b537eaa2399e3aa99c4e2e0208ebd6c71bc1467938cd52c798c601e43564";
/// 2030-01-01T00:00:00Z
pub(crate) const NOW: u64 = 1_893_456_000;

pub(crate) fn hex(text: &str) -> Felt {
    Felt::parse(text).expect(text)
}

/// A policy over the network that the vectors were taken from.
pub(crate) fn policy() -> RelayPolicy {
    RelayPolicy {
        tokens: Tokens::new(&[Secret::new(TOKEN.into())]).expect("a token"),
        trusted_proxies: TrustedProxies::default(),
        chain_id: Felt::from_short_string("SN_SEPOLIA").expect("a short string"),
        account_class: hex(CLASS),
        contracts: contracts(),
        caps: Caps {
            max_calls: 8,
            max_felts: 256,
            max_l2_gas: 1_000_000_000,
            max_fee: 10_000_000_000_000_000_000,
        },
        operations: OperationKind::ALL.to_vec(),
        assurance_types: vec!["KYC".into(), "age \"18\\21\"".into()],
        assurance_levels: vec![1, 3],
        usership_epochs: 10..=20,
    }
}

pub(crate) fn contracts() -> Contracts {
    Contracts {
        token: hex("0x04718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d"),
        staking: hex("0x7f793d298e1fee9db8b3c62d0549b4262525b94ed801f0a0c7e3f3ac39dd1cb"),
        bridge: hex("0x5856b75adb65ee21bb877eb22d3f4c8c4d03128902fd7e44223a04c63102dc9"),
        card: hex("0x164d71e9962b0870d8f15b553a211a4b9f5a5d9d0b3148328037afbd8afc25c"),
        registry: hex("0x1fd38616408aa2fc74a8ed976dc06a18a0da3ee30af5999ce7345c57097903d"),
        usership: hex("0x6d45ea633ee7a9cc63fa33e391d4eb58972a44e3215f25586355eb6247f3c30"),
    }
}

pub(crate) fn key() -> SecretKey {
    SecretKey::parse(&Secret::new("0x1234".into())).expect("a key")
}

/// The address of the account of our class that [`key`] controls.
pub(crate) fn sender() -> Felt {
    account_address(key().public_key(), hex(CLASS))
}

/// Its state on the chain.
pub(crate) fn account() -> Account {
    Account {
        class_hash: hex(CLASS),
        public_key: key().public_key(),
    }
}

pub(crate) fn call(to: Felt, entrypoint: &str, args: &[Felt]) -> Call {
    Call {
        to,
        selector: selector(entrypoint),
        args: args.to_vec(),
    }
}

pub(crate) fn felts(numbers: &[u64]) -> Vec<Felt> {
    numbers.iter().copied().map(Felt::from).collect()
}

pub(crate) fn bounds() -> Bounds {
    Bounds {
        l1_gas: (0, 1_000),
        l1_data_gas: (1_008, 1_000),
        l2_gas: (8_500_440, 1_500_000_000),
    }
}

/// Burns a card.
pub(crate) fn burn() -> Call {
    call(contracts().card, "burn", &felts(&[7, 0]))
}

pub(crate) fn invoke(calls: Vec<Call>) -> Transaction {
    let invoke = Invoke {
        sender: sender(),
        calls,
        nonce: Felt::from(3_u64),
        bounds: bounds(),
    };
    invoke.into()
}

/// The request that submits a transaction, signed by [`key`].
pub(crate) fn request(transaction: Transaction) -> String {
    let method = match transaction.to_params().starts_with("{\"deploy") {
        true => "starknet_addDeployAccountTransaction",
        false => "starknet_addInvokeTransaction",
    };
    let params = transaction.sign(policy().chain_id, &key()).to_params();
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
}

/// Judges a request to the end, by [`account`].
pub(crate) fn judge(body: &str) -> Result<TransactionPermit<'_>, Refusal> {
    judge_by(&policy(), body)
}

pub(crate) fn judge_by<'a>(
    policy: &RelayPolicy,
    body: &'a str,
) -> Result<TransactionPermit<'a>, Refusal> {
    match policy.inspect(Endpoint::Rpc, body.as_bytes(), NOW)? {
        Inspected::Transaction(unverified) => {
            unverified.admission().map_err(Refusal::clone)?;
            unverified.verify(policy, Some(account()))
        }
        Inspected::Operation(operation) => panic!("{operation:?}"),
    }
}

pub(crate) fn reason(body: &str) -> Result<(), Reason> {
    judge(body).map(drop).map_err(|refusal| refusal.reason)
}
