//! The knowledge of the node and its chain: every rule by which that is concluded, and nothing that
//! asks for it.
//!
//! In: observations (which URL, what was asked, what it answered) and the time, as a duration since
//! an arbitrary start. Out: which URL may serve and why not, what clients have seen, how far the
//! chain is and whether it went back, and who polls next. Nothing here sends a request.
//! Reading order: [`identity`] (one chain for all URLs), [`failure`] and [`health`] (one URL),
//! [`routing`] and [`hedge`] (one read over all URLs), [`members`] with [`shown`] (which URL is
//! behind, and what clients have seen), [`head_age`] (which stands still), [`state`] (all of that
//! in one value), [`url`] (what it says of one URL), [`continuity`] (what two polls prove),
//! [`schedule`] (when to poll), [`view`] (what may be cached), [`proof`] (what writes require).

pub mod continuity;
pub mod failure;
pub mod head_age;
pub mod health;
pub mod hedge;
pub mod identity;
pub mod members;
pub mod proof;
pub mod routing;
pub mod schedule;
pub mod shown;
pub mod state;
pub mod url;
pub mod view;

pub use continuity::PurgeCause;
pub use failure::{FailureClass, InvalidAnswer};
pub use head_age::HeadTime;
pub use health::{Asked, Fault, UrlHealth};
pub use hedge::{HedgeBudget, Latency, SLOW};
pub use identity::{BlockIdentity, ChainChange, ChainIdentity, ServedChain};
pub use members::{Evidence, GroupState, LeftOut, NodeMode, PollResult, Source};
pub use proof::{Pin, Proof, Proven, UNREADABLE};
pub use routing::{End, Repeat, Routing, Standing, Step, Turn};
pub use shown::{ConnectionId, Shows};
pub use state::{Change, NodeState, Observation, Request, Watched};
pub use url::{UrlFault, UrlView};
pub use view::{Validity, View};
