//! What the URLs of the node show, and where a read fails: a receipt that does not state its block,
//! a block that is too large to be read, a contract that does not answer.

use super::Bug;
use super::chain::{Block as ChainBlock, SELECTORS, View, felt};
use super::io::{SimIo, returned};
use super::node::unanswered;
use super::shown::{Fact, Failure, SERVING, fact_of_receipt};
use super::urls::Mode;
use super::world::{Fault, World, nobody};
use portcullis_filters::felt::Felt;
use portcullis_filters::tx::Bounds;
use portcullis_filters::txm::io::{Called, NodeIo};
use portcullis_filters::txm::node::{Block, CallError, ListedBlock, Receipt, Sender, code};

/// Where a block's receipts cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooLarge {
    Nowhere,
    /// At the URL with this index.
    At(usize),
    Everywhere,
    /// The block cannot be read at all, at no URL.
    Always,
}

/// The gas of each kind that a transaction uses.
const GAS: u64 = 1_000;

impl World {
    /// The price of a unit of gas, in fri.
    fn price(&mut self, view: &View) -> u128 {
        let step = view.head().number / self.dialect.price_blocks.max(1);
        let price = (1_000 + u128::from(step)) * 1_000_000_000;
        self.oracle.highest_price = self.oracle.highest_price.max(price);
        price
    }

    /// No transaction that a relay has signed states a higher fee, in fri.
    pub(super) fn highest_fee(&self) -> u128 {
        // two kinds of gas, half as much again of it, at half as much again
        let highest = 2 * u128::from(GAS) * self.oracle.highest_price * 9 / 4;
        // and a little for each one in doubt
        highest + highest / 100
    }

    fn receipt(&mut self, view: &View, hash: Felt) -> Option<Receipt> {
        let (executed, block) = view.find(hash)?;
        if block.is_some_and(|it| it.number == view.head().number) {
            self.may_be_gone_at_once(hash);
        }
        let outcome = if executed.succeeded {
            Ok(())
        } else {
            Err(Some("refused".to_owned()))
        };
        let mut receipt = Receipt {
            accepted: block.is_some(),
            outcome,
            fee: Some(executed.fee()),
            block: block.map(|block| (block.number, block.hash)),
        };
        if self.fires(Fault::BareReceipt, 40) {
            receipt.block = None;
        }
        if self.fires(Fault::FreeReceipt, 40) {
            receipt.fee = None;
        }
        if let Some((_, hash)) = &mut receipt.block
            && self.fires(Fault::OtherBlock, 80)
        {
            *hash = felt(0x0b10c);
        }
        Some(receipt)
    }

    /// Whether a block's receipts are too much for an answer of this URL; drawn once for a block.
    fn is_too_large(&mut self, block: &ChainBlock, url: usize) -> bool {
        let drawn = match self.too_large.get(&block.hash).copied() {
            Some(drawn) => drawn,
            None if !self.fires(Fault::TooLarge, 20) => TooLarge::Nowhere,
            None => match self.chance.choose(2) {
                0 => TooLarge::At(url),
                _ => TooLarge::Everywhere,
            },
        };
        self.too_large.insert(block.hash, drawn);
        match drawn {
            TooLarge::Nowhere => false,
            TooLarge::At(of) => of == url,
            TooLarge::Everywhere | TooLarge::Always => true,
        }
    }

    /// Whether no URL lets a block be read.
    fn is_unreadable(&self, block: &ChainBlock) -> bool {
        self.too_large.get(&block.hash) == Some(&TooLarge::Always)
    }

    /// The head that a URL states with this view: some know of blocks that they cannot show yet.
    fn head_beside(&self, url: usize, view: &View) -> u64 {
        let shown = view.head().number;
        match &self.urls[url].mode {
            Mode::Hollow(_) if !self.is_healed => self.chain.view().head().number.max(shown),
            _ => shown,
        }
    }

    /// A read that the node refuses, whatever it is asked.
    fn refused_read<T>(&mut self) -> Option<Called<T>> {
        if self.fires(Fault::ReadRefused, 300) {
            let code = self.chance.pick(&[-32603, -32601, -32005, 63, -1]);
            return Some(returned(code));
        }
        if self.fires(Fault::ReadMalformed, 400) {
            let ways = [Err(CallError::MalformedAnswer), unanswered("oversized")];
            let [malformed, oversized] = ways;
            return Some(match self.chance.choose(2) {
                0 => malformed,
                _ => oversized,
            });
        }
        None
    }
}

fn nonce_in(view: &View, account: Felt) -> Called<u64> {
    if account == nobody() {
        return returned(code::CONTRACT_NOT_FOUND);
    }
    Ok(view.state().nonce(account))
}

impl NodeIo for SimIo {
    type Url = usize;

    async fn call(&self, to: Felt, selector: Felt, args: &[Felt]) -> Called<Vec<Felt>> {
        let args = args.to_vec();
        let relay = self.relay;
        self.ask(move |world, view| {
            world.note_state(relay, view.state());
            if world.fires(Fault::ContractError, 300) {
                return returned(code::CONTRACT_ERROR);
            }
            match world.refused_read() {
                Some(refused) => refused,
                None if to == nobody() => returned(code::CONTRACT_NOT_FOUND),
                None if selector == SELECTORS.balance_of && world.is_faucet_empty() => {
                    Ok(vec![Felt::ZERO; 2])
                }
                None => Ok(view.state().call(selector, &args)),
            }
        })
        .await
    }

    async fn class_hash_at(&self, address: Felt) -> Called<Option<Felt>> {
        let relay = self.relay;
        self.ask(move |world, view| {
            world.note_state(relay, view.state());
            if view.state().is_deployed(address) {
                Ok(world.class_of(address))
            } else {
                Ok(None)
            }
        })
        .await
    }

    async fn nonce(&self, account: Felt) -> Called<u64> {
        let begun = self.world.now();
        let nonce = self.ask(move |world, view| match world.refused_read() {
            Some(refused) => refused,
            None => nonce_in(view, account),
        });
        let nonce = nonce.await;
        let mut world = self.world.lock();
        world.record_nonce(self.relay, SERVING, account, &nonce, begun);
        drop(world);
        let nonce = nonce?;
        let bug = self.world.lock().bug;
        let counts = matches!(bug, Bug::LocalCounter | Bug::BurnedNonce);
        Ok(if counts {
            self.counted(account, nonce)
        } else {
            nonce
        })
    }

    async fn head(&self) -> Called<Block> {
        self.ask(|_, view| {
            let head = view.head();
            Ok(Block {
                number: head.number,
                hash: head.hash,
                timestamp: head.timestamp,
            })
        })
        .await
    }

    async fn anchor(&self) -> Called<String> {
        let begun = self.world.now();
        let anchor = self.ask(|_, view| Ok(format!("g{}", view.genesis))).await;
        if let Ok(epoch) = &anchor {
            let fact = Fact::Anchor(epoch.clone(), begun);
            self.world.lock().show(self.relay, SERVING, fact, begun);
        }
        anchor
    }

    async fn estimate(&self, transaction: &str) -> Called<Bounds> {
        let hash = Felt::parse(transaction).expect("it was signed here");
        let refused = self.world.lock().fires(Fault::EstimateRefused, 50);
        let tx = self.world.lock().signed[&hash];
        let relay = self.relay;
        self.ask(move |world, view| {
            if view.state().nonce(tx.sender) != tx.nonce {
                world.fail(relay, Failure::NonceMoved);
                return returned(code::EXECUTION_ERROR);
            }
            if refused {
                return returned(code::EXECUTION_ERROR);
            }
            let price = world.price(view);
            Ok(Bounds {
                l1_gas: (0, price),
                l1_data_gas: (GAS, price),
                l2_gas: (GAS, price),
            })
        })
        .await
    }

    async fn receipt(&self, hash: Felt) -> Called<Option<Receipt>> {
        let begun = self.world.now();
        let receipt = self.ask(move |world, view| match world.refused_read() {
            Some(refused) => refused,
            None => Ok(world.receipt(view, hash)),
        });
        let receipt = receipt.await;
        let fact = fact_of_receipt(hash, &receipt);
        self.world.lock().show(self.relay, SERVING, fact, begun);
        receipt
    }

    fn urls(&self) -> Vec<usize> {
        let mut world = self.world.lock();
        let urls = world.urls_of(self.relay);
        if urls.is_empty() {
            // as if none answered
            let now = world.now();
            world.oracle.silent = Some(now);
            world.show(self.relay, SERVING, Fact::NoUrl, now);
        }
        urls
    }

    async fn head_of(&self, url: usize) -> Called<u64> {
        let begun = self.world.now();
        let head = self.ask_url(url, move |world, view| Ok(world.head_beside(url, view)));
        let head = head.await;
        let fact = head
            .as_ref()
            .map_or(Fact::Silent, |number| Fact::Head(*number));
        self.world.lock().show(self.relay, url, fact, begun);
        head
    }

    async fn block_of(&self, url: usize, number: u64) -> Called<Option<ListedBlock>> {
        let absent_is_lost = self.world.lock().bug == Bug::AbsentIsLost;
        let begun = self.world.now();
        let block = self.ask_url(url, move |world, view| {
            if let Some(refused) = world.refused_read() {
                return refused;
            }
            if view.block(number).is_some_and(|it| world.is_unreadable(it)) {
                return unanswered("oversized");
            }
            let listed = view.block(number).map(|block| ListedBlock {
                hash: block.hash,
                transactions: block.txs.iter().map(|it| it.tx.hash).collect(),
            });
            let other = ListedBlock {
                hash: felt(1),
                transactions: Vec::new(),
            };
            Ok(listed.or(absent_is_lost.then_some(other)))
        });
        let block = block.await;
        let fact = match &block {
            Ok(listed) => Fact::Block(number, listed.clone()),
            Err(_) => Fact::Silent,
        };
        self.world.lock().show(self.relay, url, fact, begun);
        block
    }

    async fn transaction_of(
        &self,
        url: usize,
        number: u64,
        account: Felt,
        nonce: u64,
    ) -> Called<Option<Felt>> {
        self.ask_url(url, move |world, view| {
            if let Some(refused) = world.refused_read() {
                return refused;
            }
            let Some(block) = view.block(number) else {
                return Ok(None);
            };
            if world.is_too_large(block, url) {
                return unanswered("oversized");
            }
            let found = block
                .txs
                .iter()
                .find(|it| (it.tx.sender, it.tx.nonce) == (account, nonce));
            Ok(found.map(|it| it.tx.hash))
        })
        .await
    }

    async fn receipt_of(&self, url: usize, hash: Felt) -> Called<Option<Receipt>> {
        let begun = self.world.now();
        let receipt = self.ask_url(url, move |world, view| match world.refused_read() {
            Some(refused) => refused,
            None => Ok(world.receipt(view, hash)),
        });
        let receipt = receipt.await;
        let fact = fact_of_receipt(hash, &receipt);
        self.world.lock().show(self.relay, url, fact, begun);
        receipt
    }

    async fn nonce_of(&self, url: usize, account: Felt) -> Called<u64> {
        let begun = self.world.now();
        let nonce = self.ask_url(url, move |_, view| nonce_in(view, account));
        let nonce = nonce.await;
        let mut world = self.world.lock();
        world.record_nonce(self.relay, url, account, &nonce, begun);
        drop(world);
        let nonce = nonce?;
        Ok(nonce)
    }

    async fn sender_of(&self, url: usize, hash: Felt) -> Called<Option<Sender>> {
        self.ask_url(url, move |_, view| {
            Ok(view.find(hash).map(|(found, _)| Sender {
                account: found.tx.sender,
                nonce: found.tx.nonce,
            }))
        })
        .await
    }

    fn note_shown(&self, number: u64) {
        let mut world = self.world.lock();
        world.relays[self.relay].floor.note_shown(number);
        let noted = &mut world.oracle.notes.noted;
        let highest = noted.entry(self.relay).or_default();
        *highest = number.max(*highest);
    }
}
