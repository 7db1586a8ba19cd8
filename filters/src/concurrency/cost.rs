//! The classes of reads that cost a node about the same.

use crate::named;
use crate::rpc::Method;

named! {
    /// The cost of a read. Each class has its own limit: its latencies are compared with each
    /// other only.
    pub enum CostClass {
        /// A lookup by a key: a block, a transaction, a nonce.
        Lookup = "lookup",
        /// A class: its answer is large.
        Class = "class",
        /// An execution of contracts.
        Execution = "execution",
    }
}

impl CostClass {
    /// The class of a method.
    pub const fn of(method: Method) -> Self {
        match method {
            Method::SpecVersion
            | Method::ChainId
            | Method::BlockNumber
            | Method::GetBlockWithTxHashes
            | Method::GetTransactionByHash
            | Method::GetTransactionReceipt
            | Method::GetTransactionStatus
            | Method::GetClassHashAt
            | Method::GetNonce => Self::Lookup,
            Method::GetClass | Method::GetClassAt => Self::Class,
            Method::Call | Method::EstimateFee => Self::Execution,
        }
    }
}
