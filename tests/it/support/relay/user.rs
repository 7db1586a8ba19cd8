//! A user with an account: signs transactions as a wallet would, ready to be modified.

use portcullis_filters::felt::Felt;
use portcullis_filters::secret::SecretKey;
use portcullis_filters::tx::{
    Bounds, Call, DeployAccount, Invoke, Transaction, account_address, selector,
};

use super::chain::{CLASS, felt, key};
use crate::support::request::rpc;

/// The id of every request.
pub(crate) const ID: &str = "7";
const PRICE: u128 = 10_000_000_000;

/// Enough for any transaction here, at most 1 STRK in total.
pub(crate) const BOUNDS: Bounds = Bounds {
    l1_gas: (0, PRICE),
    l1_data_gas: (10_000, PRICE),
    l2_gas: (90_000_000, PRICE),
};

/// A key pair and its account.
pub(crate) struct User {
    pub(crate) key: SecretKey,
    pub(crate) address: Felt,
}

/// A transaction in its canonical text, and its hash.
#[derive(Clone)]
pub(crate) struct Signed {
    pub(crate) hash: Felt,
    pub(crate) text: String,
    method: &'static str,
    param: &'static str,
}

impl User {
    /// The user with this key.
    pub(crate) fn with_key(text: &str) -> Self {
        let key = key(text);
        let address = account_address(key.public_key(), felt(CLASS));
        Self { key, address }
    }

    /// Signs calls with this nonce.
    pub(crate) fn invoke(&self, calls: &[Call], nonce: u64) -> Signed {
        self.invoke_within(calls, nonce, BOUNDS)
    }

    /// An invoke with other bounds.
    pub(crate) fn invoke_within(&self, calls: &[Call], nonce: u64, bounds: Bounds) -> Signed {
        self.invoke_from(self.address, calls, nonce, bounds)
    }

    /// An invoke with any account as the sender.
    pub(crate) fn invoke_from(
        &self,
        sender: Felt,
        calls: &[Call],
        nonce: u64,
        bounds: Bounds,
    ) -> Signed {
        let nonce = Felt::from(nonce);
        let unsigned = Transaction::from(Invoke {
            sender,
            calls: calls.to_vec(),
            nonce,
            bounds,
        });
        Signed::new(
            unsigned,
            &self.key,
            "invoke_transaction",
            "starknet_addInvokeTransaction",
        )
    }

    /// Signs the transaction that deploys the account.
    pub(crate) fn deploy(&self) -> Signed {
        self.deploy_of(felt(CLASS))
    }

    /// The deployment of an account of any class.
    pub(crate) fn deploy_of(&self, class_hash: Felt) -> Signed {
        self.deploy_within(class_hash, BOUNDS)
    }

    /// A deployment with other bounds.
    pub(crate) fn deploy_within(&self, class_hash: Felt, bounds: Bounds) -> Signed {
        let public_key = self.key.public_key();
        let unsigned = Transaction::from(DeployAccount {
            class_hash,
            public_key,
            bounds,
        });
        let method = "starknet_addDeployAccountTransaction";
        Signed::new(unsigned, &self.key, "deploy_account_transaction", method)
    }
}

/// The chain that signatures are for.
pub(crate) fn chain_id() -> Felt {
    Felt::from_short_string("PORTCULLIS_DEV").expect("a short string")
}

impl Signed {
    fn new(
        unsigned: Transaction,
        key: &SecretKey,
        param: &'static str,
        method: &'static str,
    ) -> Self {
        let signed = unsigned.sign(chain_id(), key);
        Self {
            hash: signed.hash(chain_id()),
            text: signed.to_json(),
            method,
            param,
        }
    }

    /// The body of the request that submits it.
    pub(crate) fn body(&self) -> String {
        self.request_with(&self.text)
    }

    /// A request with another text for the transaction.
    pub(crate) fn request_with(&self, text: &str) -> String {
        rpc(ID, self.method, &format!(r#"{{"{}":{text}}}"#, self.param))
    }

    /// The body with one occurrence of `from` replaced.
    pub(crate) fn bent(&self, from: &str, to: &str) -> Vec<u8> {
        replaced(&self.body(), from, to).into_bytes()
    }
}

/// `text` with the first `from` replaced; panics if it is absent.
pub(crate) fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(
        text.contains(from),
        "{from} is what {to} stands for in {text}"
    );
    text.replacen(from, to, 1)
}

/// A call of an entrypoint by its name.
pub(crate) fn call(to: Felt, entrypoint: &str, args: &[Felt]) -> Call {
    Call {
        to,
        selector: selector(entrypoint),
        args: args.to_vec(),
    }
}
