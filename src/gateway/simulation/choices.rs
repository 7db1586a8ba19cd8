//! All chance of a simulation: a list of choices that a seed makes and that replays on any machine.
//!
//! In every choice 0 is benign: no fault, the least that can happen. So a list is shrunk by cutting
//! spans and by zeroing choices, and what is left is the failure.

/// Replays that shrinking may take.
const REPLAYS: usize = 2_000;

/// The choices of one run.
#[derive(Debug)]
pub(super) struct Choices {
    list: Vec<u32>,
    at: usize,
    /// Continues the list; without it every later choice is 0.
    chance: Option<u64>,
}

impl Choices {
    pub(super) fn of_seed(seed: u64) -> Self {
        Self { list: Vec::new(), at: 0, chance: Some(seed.wrapping_add(1)) }
    }

    pub(super) fn of_list(list: &[u32]) -> Self {
        Self { list: list.to_vec(), at: 0, chance: None }
    }

    /// A number below `count`.
    pub(super) fn choose(&mut self, count: u32) -> u32 {
        if self.at == self.list.len() {
            self.list.push(self.chance.as_mut().map_or(0, |chance| {
                *chance =
                    chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
                (*chance >> 33) as u32
            }));
        }
        self.at += 1;
        self.list[self.at - 1] % count
    }

    /// True once in `count` times.
    pub(super) fn once_in(&mut self, count: u32) -> bool {
        self.choose(count) == count - 1
    }

    /// The choices that were made.
    pub(super) fn made(&self) -> &[u32] {
        &self.list[..self.at]
    }
}

/// The shortest list found with which `fails` is still true.
pub(super) fn shrink(list: &[u32], fails: impl Fn(&[u32]) -> bool) -> Vec<u32> {
    let (mut best, mut replays) = (list.to_vec(), 0);
    let mut size = best.len() / 2;
    while size > 0 && replays < REPLAYS {
        let mut at = 0;
        while at < best.len() && replays < REPLAYS {
            let end = (at + size).min(best.len());
            let cut = [&best[..at], &best[end..]].concat();
            let mut zeroed = best.clone();
            zeroed[at..end].fill(0);
            let is_zero = zeroed == best;
            replays += 2;
            if fails(&cut) {
                best = cut;
            } else {
                if !is_zero && fails(&zeroed) {
                    best = zeroed;
                }
                at = end;
            }
        }
        size /= 2;
    }
    best
}

#[test]
fn a_list_shrinks_to_what_matters() {
    let mut choices = Choices::of_seed(3);
    for _ in 0..200 {
        choices.choose(1_000);
    }
    let made = choices.made().to_vec();
    let is_large = |list: &[u32]| {
        let mut choices = Choices::of_list(list);
        (0..200).filter(|_| choices.choose(1_000) > 900).count() >= 2
    };
    assert!(is_large(&made));
    assert_eq!(shrink(&made, is_large).len(), 2);
}
