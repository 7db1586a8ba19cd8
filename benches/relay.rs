//! The cost of the relay's policy: the token, a user's multicall down to its hash, its signature,
//! and an operation's body.
//!
//! `cargo bench --bench relay`. Hash and signature take most of the time; the limits on calls and
//! calldata bound both.

use criterion::{Criterion, criterion_group, criterion_main};
use portcullis_filters::bearer::Tokens;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::felt::Felt;
use portcullis_filters::operations::OperationKind;
use portcullis_filters::policy::{Caps, Contracts, Endpoint, Inspected, RelayPolicy};
use portcullis_filters::secret::{Secret, SecretKey};
use portcullis_filters::tx::{Account, Bounds, Call, Invoke, Transaction, selector};
use std::hint::black_box;

fn felt(value: u64) -> Felt {
    Felt::from(value)
}

fn policy() -> RelayPolicy {
    RelayPolicy {
        tokens: Tokens::none(),
        trusted_proxies: TrustedProxies::default(),
        chain_id: Felt::from_short_string("PORTCULLIS_DEV").expect("it is short"),
        account_class: felt(1),
        contracts: Contracts {
            token: felt(0x100),
            staking: felt(0x101),
            bridge: felt(0x102),
            card: felt(0x103),
            registry: felt(0x104),
            usership: felt(0x105),
        },
        caps: Caps {
            max_calls: 8,
            max_felts: 256,
            max_l2_gas: u64::MAX,
            max_fee: u128::MAX,
        },
        operations: OperationKind::ALL.to_vec(),
        assurance_types: vec!["age_over_18".into()],
        assurance_levels: vec![1],
        usership_epochs: 0..=u64::MAX,
    }
}

/// Signs `calls` alternating calls of `approve` and `delegate`.
fn multicall(policy: &RelayPolicy, key: &SecretKey, calls: usize) -> String {
    let approve = Call {
        to: policy.contracts.token,
        selector: selector("approve"),
        args: vec![policy.contracts.staking, felt(1), Felt::ZERO],
    };
    let delegate = Call {
        to: policy.contracts.staking,
        selector: selector("delegate"),
        args: vec![felt(7), felt(1), Felt::ZERO],
    };
    let calls = [approve, delegate]
        .into_iter()
        .cycle()
        .take(calls)
        .collect();
    let bounds = Bounds {
        l1_gas: (0, 1),
        l1_data_gas: (1_000, 1),
        l2_gas: (9_000_000, 1),
    };
    let invoke = Invoke {
        sender: felt(9),
        calls,
        nonce: felt(3),
        bounds,
    };
    let transaction = Transaction::from(invoke).sign(policy.chain_id, key);
    let params = transaction.to_params();
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"starknet_addInvokeTransaction","params":{params}}}"#
    )
}

fn transactions(c: &mut Criterion) {
    let policy = policy();
    let key = SecretKey::parse(&Secret::new(b"0x71d7bb07b9a64f6f78ac4c816aff4da9".to_vec()));
    let key = key.expect("it is a key");
    let account = Account {
        class_hash: policy.account_class,
        public_key: key.public_key(),
    };
    for calls in [2, 8] {
        let body = multicall(&policy, &key, calls);
        let inspect = || match policy.inspect(Endpoint::Rpc, black_box(body.as_bytes()), 0) {
            Ok(Inspected::Transaction(unverified)) => unverified,
            other => panic!("it must pass: {other:?}"),
        };
        c.bench_function(&format!("{calls} calls: decode, judge, hash"), |b| {
            b.iter(inspect)
        });
        c.bench_function(&format!("{calls} calls: that, and the signature"), |b| {
            b.iter(|| {
                inspect()
                    .verify(&policy, Some(account))
                    .expect("it is signed")
            });
        });
    }
}

fn operations(c: &mut Criterion) {
    let policy = policy();
    let body = br#"{"recipient":"0x64b48806902a367c8598f4f95c305e8c1a1acba5f08","card_id":"42"}"#;
    let endpoint = Endpoint::Operation(OperationKind::MintCard);
    c.bench_function("an operation's body", |b| {
        b.iter(|| {
            policy
                .inspect(endpoint, black_box(body), 0)
                .expect("it is well-formed")
        });
    });
}

criterion_group!(benches, transactions, operations);
criterion_main!(benches);
