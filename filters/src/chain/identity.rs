//! The identity of a block, and that of a chain: every URL of the node must have the served one.
//!
//! A configured id pins the chain, otherwise the first URL that answers does, with its anchor. A
//! URL of another chain is excluded until it shows the served one again.

use crate::felt::Felt;
use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The identity of an accepted block at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockIdentity {
    /// The block's number.
    pub number: u64,
    /// A digest of the fields that identify the block, independent of how a node formats them. The
    /// hash alone does not suffice on every node: `starknet-devnet` leaves the contents out of it.
    pub fingerprint: [u8; 32],
}

impl BlockIdentity {
    /// Reads the identity of a block with transaction hashes from JSON; `None` if it has no number.
    pub fn read(block: &Value) -> Option<Self> {
        const FIELDS: [&str; 5] = [
            "block_hash",
            "block_number",
            "parent_hash",
            "new_root",
            "timestamp",
        ];
        let fields = FIELDS.iter().map(|name| block.get(name));
        let transactions = block.get("transactions").and_then(Value::as_array);
        let transactions = transactions.into_iter().flatten().map(Some);
        let mut digest = Sha256::new();
        for value in fields.chain(transactions) {
            let value = value.unwrap_or(&Value::Null);
            let felt = value.as_str().and_then(Felt::parse);
            digest.update(felt.map_or_else(|| value.to_string(), |felt| felt.to_string()));
            digest.update("\n");
        }
        Some(Self {
            number: block.get("block_number")?.as_u64()?,
            fingerprint: digest.finalize().into(),
        })
    }
}

/// The identity of a URL's chain; `None` for the parts that the URL does not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainIdentity {
    id: Option<Felt>,
    anchor: Option<BlockIdentity>,
}

impl ChainIdentity {
    /// Reads the results of `starknet_chainId` and of the request for the anchor block.
    pub fn read(id: Option<&Value>, anchor: Option<&Value>) -> Self {
        Self {
            id: id.and_then(Value::as_str).and_then(Felt::parse),
            anchor: anchor.and_then(BlockIdentity::read),
        }
    }

    fn id(self) -> String {
        let text = self
            .id
            .map(|id| id.to_short_string().unwrap_or_else(|| id.to_string()));
        text.unwrap_or_else(|| "none".to_owned())
    }
}

/// The last finding about a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum UrlStatus {
    #[default]
    Unknown,
    /// It has the served chain. The block is its newest one at that time, if it was polled.
    Serves(Option<BlockIdentity>),
    /// It has another chain; the text says how they differ.
    Excluded(String),
}

impl UrlStatus {
    fn serves(&self) -> bool {
        matches!(self, Self::Serves(_))
    }
}

/// The change that a finding makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainChange {
    /// No change.
    None,
    /// The URL serves again.
    Returned,
    /// The URL is excluded, for this reason.
    Excluded(String),
    /// The served chain is another one.
    Restarted,
}

/// The chain that is served, and the last finding about each URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedChain {
    chain_id: Option<Felt>,
    anchor: u64,
    pin: Option<ChainIdentity>,
    urls: Vec<UrlStatus>,
    check: u64,
}

impl ServedChain {
    /// The state before the first answer of this many URLs. `chain_id` pins the chain if it is set;
    /// block `anchor` identifies it.
    pub fn new(urls: usize, chain_id: Option<Felt>, anchor: u64) -> Self {
        Self {
            chain_id,
            anchor,
            pin: None,
            urls: vec![UrlStatus::Unknown; urls],
            check: 0,
        }
    }

    /// Whether a URL could be of another chain. A single one without `node.chain_id` cannot: its
    /// chain is the served one.
    pub fn is_checked(&self) -> bool {
        self.urls.len() > 1 || self.chain_id.is_some()
    }

    /// Whether it is known which chain is served.
    pub fn is_pinned(&self) -> bool {
        self.pin.is_some()
    }

    /// The number of the current check: the chain of a connection that was checked in an earlier
    /// one has to be checked again.
    pub fn check(&self) -> u64 {
        self.check
    }

    /// How the chain of the URL differs from the served one, in words, if it does.
    pub fn foreign(&self, index: usize) -> Option<&str> {
        match self.urls.get(index)? {
            UrlStatus::Excluded(why) => Some(why),
            UrlStatus::Unknown | UrlStatus::Serves(_) => None,
        }
    }

    /// Whether this newest block proves that the URL still has the served chain: it had the block
    /// already when its chain was compared last.
    pub fn is_proved_by(&self, index: usize, head: BlockIdentity) -> bool {
        self.urls.get(index) == Some(&UrlStatus::Serves(Some(head)))
    }

    /// Compares the chain of the URL at `index` with the served one. `head` is its newest block, if
    /// that is known.
    pub fn judge(
        &mut self,
        index: usize,
        found: ChainIdentity,
        head: Option<BlockIdentity>,
    ) -> ChainChange {
        let compared = self.compare(index, found);
        let Some(known) = self.urls.get_mut(index) else {
            return ChainChange::None;
        };
        let was_excluded = matches!(known, UrlStatus::Excluded(_));
        let change = match compared {
            Ok(change) => {
                *known = match known {
                    UrlStatus::Serves(last) if change == ChainChange::None => {
                        UrlStatus::Serves(head.or(*last))
                    }
                    _ => UrlStatus::Serves(head),
                };
                if was_excluded {
                    ChainChange::Returned
                } else {
                    change
                }
            }
            Err(why) => {
                *known = UrlStatus::Excluded(why.clone());
                if was_excluded {
                    ChainChange::None
                } else {
                    ChainChange::Excluded(why)
                }
            }
        };
        // a chain changes behind open connections, too
        if matches!(change, ChainChange::Excluded(_) | ChainChange::Restarted) {
            self.check = self.check.saturating_add(1);
        }
        change
    }

    fn compare(&mut self, index: usize, found: ChainIdentity) -> Result<ChainChange, String> {
        let id = self.chain_id.or(self.pin.and_then(|pin| pin.id));
        if (self.pin.is_some() || id.is_some()) && found.id != id {
            let served = ChainIdentity { id, anchor: None };
            return Err(format!(
                "its chain is {}, the served one is {}",
                found.id(),
                served.id()
            ));
        }
        if self.pin.is_none_or(|pin| pin == found) {
            self.pin = Some(found);
            return Ok(ChainChange::None);
        }
        // the only URL that served the chain restarted it: as with a single URL, the new chain is
        // served
        let serving = self.urls.iter().filter(|url| url.serves());
        if serving.count() == 1 && self.urls.get(index).is_some_and(UrlStatus::serves) {
            self.pin = Some(found);
            return Ok(ChainChange::Restarted);
        }
        Err(format!(
            "its chain is {}, but its block {} differs from the served one's",
            found.id(),
            self.anchor
        ))
    }
}
