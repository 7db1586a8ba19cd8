//! Why the node gives no answer.

use crate::io::Exhausted;
use portcullis_filters::named;

named! {
    /// Why there is no answer to pass on.
    pub enum NodeError {
        /// The deadline passed.
        Timeout = "timeout",
        /// No connection: the request was not sent.
        Unreachable = "unreachable",
        /// Every URL that accepts connections is of another chain: the request was not sent.
        WrongChain = "wrong_chain",
        /// Every URL that could answer is behind what clients have seen.
        Lagging = "lagging",
        /// It is being built or started: the request was not sent.
        Starting = "starting",
        /// The connection ended before the answer began: the request may have been received.
        Cut = "cut",
        /// A status of 3xx.
        Redirect = "redirect",
        /// Any other status than 200.
        Status = "status",
        /// More than 4 MiB.
        Oversized = "oversized",
        /// Not one complete JSON-RPC 2.0 response to our request.
        Invalid = "invalid",
        /// Our own bound on memory or connections is reached.
        Overloaded = "overloaded",
        /// The client holds its share of the memory for answers.
        OverShare = "over_share",
    }
}

impl From<Exhausted> for NodeError {
    fn from(exhausted: Exhausted) -> Self {
        match exhausted {
            Exhausted::Pool => Self::Overloaded,
            Exhausted::Share => Self::OverShare,
        }
    }
}

impl NodeError {
    /// Whether a bound of ours was reached: it says nothing of the node.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Overloaded | Self::OverShare)
    }

    /// Whether it is certain that the node did not receive the request.
    pub const fn is_unsent(self) -> bool {
        matches!(self, Self::Unreachable | Self::WrongChain | Self::Lagging | Self::Starting)
    }
}
