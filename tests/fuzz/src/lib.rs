//! Shared by the targets: the policies of the network that the vectors were taken from, and
//! readers of JSON and felts that have nothing in common with those under test but `serde_json`.

pub mod reference;

use portcullis_filters::bearer::Tokens;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::felt::Felt;
use portcullis_filters::networks::Networks;
use portcullis_filters::operations::OperationKind;
use portcullis_filters::policy::{Caps, Contracts, GatewayPolicy, RelayPolicy};
use portcullis_filters::rpc::{Method, MethodSet};
use portcullis_filters::secret::{Secret, SecretKey};
use portcullis_filters::tx::Account;

/// 2030-01-01T00:00:00Z, in seconds.
pub const NOW: u64 = 1_893_456_000;

/// The relay's only token.
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

const CLASS: &str = "0x5b4b537eaa2399e3aa99c4e2e0208ebd6c71bc1467938cd52c798c601e43564";

/// The felt of a text that is one.
pub fn hex(text: &str) -> Felt {
    Felt::parse(text).expect("a felt")
}

/// A gateway that serves everything, behind proxies in `10.0.0.0/8` and on loopback.
pub fn gateway() -> GatewayPolicy {
    GatewayPolicy {
        methods: MethodSet::new(&Method::ALL),
        trusted_proxies: proxies(),
        blocked: Networks::default(),
        has_documents: false,
    }
}

fn proxies() -> TrustedProxies {
    let networks = ["127.0.0.0/8", "10.0.0.0/8", "2001:db8::/32"];
    networks
        .map(|network| network.parse().expect("a network"))
        .to_vec()
        .into()
}

/// The relay of the network that the vectors were taken from.
pub fn relay() -> RelayPolicy {
    RelayPolicy {
        tokens: Tokens::new(&[Secret::new(TOKEN.into())]).expect("a token"),
        trusted_proxies: proxies(),
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
        assurance_types: vec!["KYC".into()],
        assurance_levels: vec![1, 3],
        usership_epochs: 10..=20,
    }
}

/// Its contracts.
pub fn contracts() -> Contracts {
    Contracts {
        token: hex("0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d"),
        staking: hex("0x7f793d298e1fee9db8b3c62d0549b4262525b94ed801f0a0c7e3f3ac39dd1cb"),
        bridge: hex("0x5856b75adb65ee21bb877eb22d3f4c8c4d03128902fd7e44223a04c63102dc9"),
        card: hex("0x164d71e9962b0870d8f15b553a211a4b9f5a5d9d0b3148328037afbd8afc25c"),
        registry: hex("0x1fd38616408aa2fc74a8ed976dc06a18a0da3ee30af5999ce7345c57097903d"),
        usership: hex("0x6d45ea633ee7a9cc63fa33e391d4eb58972a44e3215f25586355eb6247f3c30"),
    }
}

/// The key of an account of the approved class.
pub fn key() -> SecretKey {
    SecretKey::parse(&Secret::new("0x1234".into())).expect("a key")
}

/// That account, as the chain stores it.
pub fn account() -> Account {
    Account {
        class_hash: hex(CLASS),
        public_key: key().public_key(),
    }
}
