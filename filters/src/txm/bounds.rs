//! The resource bounds of a transaction that the relay signs.

use super::settings::Settings;
use crate::tx::Bounds;
use crate::verdict::{Reason, Refusal};

/// The estimate plus half, as prices and state change, within the caps; and the highest fee.
/// `in_doubt` is the number of doubtful transactions with the same nonce: the bounds differ from
/// theirs, since the same calls at the same price would be the same transaction.
pub(super) fn bounds(
    estimate: &Bounds,
    settings: &Settings,
    in_doubt: usize,
) -> Result<(Bounds, u128), Refusal> {
    let margin = |(amount, price): (u64, u128)| {
        (
            amount.saturating_add(amount / 2),
            price.saturating_add(price / 2),
        )
    };
    let [l1_gas, mut l1_data_gas, l2_gas] =
        [estimate.l1_gas, estimate.l1_data_gas, estimate.l2_gas].map(margin);
    l1_data_gas.1 = l1_data_gas
        .1
        .saturating_add(u128::try_from(in_doubt).unwrap_or(u128::MAX));
    let bounds = Bounds {
        l1_gas,
        l1_data_gas,
        l2_gas,
    };
    match bounds.max_fee() {
        Some(fee) if fee <= settings.max_fee && l2_gas.0 <= settings.max_l2_gas => {
            Ok((bounds, fee))
        }
        _ => {
            let message = "the chain's price of the write is over the configured bound";
            Err(Refusal::new(Reason::FeeBoundExceeded, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Budgets;
    use core::time::Duration;

    const ESTIMATE: Bounds = Bounds {
        l1_gas: (2, 10),
        l1_data_gas: (4, 20),
        l2_gas: (6, 30),
    };
    /// Half as much again of each amount and price: 3 * 15 + 6 * 30 + 9 * 45.
    const FEE: u128 = 630;

    fn settings(max_fee: u128, max_l2_gas: u64) -> Settings {
        Settings {
            faucet_amount: 100,
            faucet_cooldown: Duration::ZERO,
            max_fee,
            max_l2_gas,
            recovery_cancel_window: Duration::ZERO,
            receipt_timeout: Duration::ZERO,
            confirmations: 1,
            budgets: Budgets::default(),
        }
    }

    #[test]
    fn the_bounds_are_the_estimate_and_half_of_it() {
        let expected = Bounds {
            l1_gas: (3, 15),
            l1_data_gas: (6, 30),
            l2_gas: (9, 45),
        };
        assert_eq!(bounds(&ESTIMATE, &settings(FEE, 9), 0), Ok((expected, FEE)));
    }

    #[test]
    fn each_transaction_in_doubt_makes_them_another_transaction() {
        let (found, fee) = bounds(&ESTIMATE, &settings(FEE + 12, 9), 2).unwrap();
        assert!(
            bounds(&ESTIMATE, &settings(FEE + 11, 9), 2).is_err(),
            "the cap is of all of it"
        );
        assert_eq!((found.l1_data_gas, fee), ((6, 32), FEE + 6 * 2));
    }

    #[test]
    fn neither_the_fee_nor_the_gas_may_be_over_its_cap() {
        for (max_fee, max_l2_gas) in [(FEE - 1, 9), (FEE, 8)] {
            let refusal = bounds(&ESTIMATE, &settings(max_fee, max_l2_gas), 0).unwrap_err();
            assert_eq!(
                refusal.reason,
                Reason::FeeBoundExceeded,
                "{max_fee} {max_l2_gas}"
            );
        }
        let endless = Bounds {
            l2_gas: (9, u128::MAX),
            ..ESTIMATE
        };
        assert!(bounds(&endless, &settings(u128::MAX, u64::MAX), 0).is_err());
    }
}
