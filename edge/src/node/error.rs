//! Why the node gives no answer.

use portcullis_base::io::Exhausted;
use portcullis_filters::named;

named! {
    /// Why there is no answer to pass on.
    pub enum NodeError {
        /// The deadline passed.
        Timeout = "timeout",
        /// No connection: the request was not sent.
        Unreachable = "unreachable",
        /// Every URL that accepts connections has another chain: the request was not sent.
        WrongChain = "wrong_chain",
        /// Every URL that could answer is behind what clients have seen.
        Lagging = "lagging",
        /// The node is being built or started: the request was not sent.
        Starting = "starting",
        /// The connection ended before the answer began: the request may have been received.
        Cut = "cut",
        /// A 3xx status.
        Redirect = "redirect",
        /// Any other status except 200.
        Status = "status",
        /// The answer is larger than 4 MiB.
        Oversized = "oversized",
        /// The answer is not one complete JSON-RPC 2.0 response to our request.
        Invalid = "invalid",
        /// More calls wait than the URL is likely to answer in time: the request was not sent.
        Crowded = "crowded",
        /// Our own bound on memory or connections is reached.
        Overloaded = "overloaded",
        /// The client already holds its share of the memory for answers.
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
    /// Whether our own bound was reached, which says nothing about the node.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Crowded | Self::Overloaded | Self::OverShare)
    }

    /// Whether it is certain that the node did not receive the request.
    pub const fn is_unsent(self) -> bool {
        matches!(
            self,
            Self::Unreachable | Self::WrongChain | Self::Lagging | Self::Starting | Self::Crowded
        )
    }
}
