//! The allowlist: thirteen reads, and never another method.

use crate::named::named;

named! {
    /// A read method of the Starknet JSON-RPC API that the gateway serves.
    #[expect(missing_docs, reason = "each is the method of its name in the Starknet API")]
    pub enum Method {
        SpecVersion = "starknet_specVersion",
        ChainId = "starknet_chainId",
        BlockNumber = "starknet_blockNumber",
        GetBlockWithTxHashes = "starknet_getBlockWithTxHashes",
        GetTransactionByHash = "starknet_getTransactionByHash",
        GetTransactionReceipt = "starknet_getTransactionReceipt",
        GetTransactionStatus = "starknet_getTransactionStatus",
        GetClassHashAt = "starknet_getClassHashAt",
        GetClass = "starknet_getClass",
        GetClassAt = "starknet_getClassAt",
        GetNonce = "starknet_getNonce",
        Call = "starknet_call",
        EstimateFee = "starknet_estimateFee",
    }
}

/// The methods that a deployment permits: the thirteen, or fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodSet([bool; Method::ALL.len()]);

impl MethodSet {
    /// The set of these methods.
    pub fn new(methods: &[Method]) -> Self {
        Self(Method::ALL.map(|method| methods.contains(&method)))
    }

    /// Whether `method` is permitted.
    pub fn contains(&self, method: Method) -> bool {
        Method::ALL.into_iter().zip(self.0).any(|(member, is_in)| member == method && is_in)
    }
}

#[cfg(test)]
mod tests {
    use super::Method::{Call, ChainId};
    use super::*;

    #[test]
    fn a_method_has_one_exact_name() {
        assert_eq!(Method::ALL.len(), 13, "the thirteen reads");
        for (at, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method as usize, at, "{method:?} is out of order");
            assert_eq!(Method::parse(method.name()), Some(method));
        }
        for name in [
            "",
            "starknet_Call",
            "starknet_call ",
            " starknet_call",
            "starknet_call\0",
            "STARKNET_CALL",
            "call",
            "starknet_addInvokeTransaction",
            "starknet_addDeployAccountTransaction",
            "starknet_addDeclareTransaction",
            "starknet_getBlockWithTxs",
            "devnet_mint",
            "devnet_call",
        ] {
            assert_eq!(Method::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_set_holds_its_methods_only() {
        let set = MethodSet::new(&[ChainId, Call]);
        for method in Method::ALL {
            assert_eq!(set.contains(method), matches!(method, ChainId | Call), "{method:?}");
        }
    }
}
