//! The resource bounds of a transaction that the relay signs.

use super::settings::Settings;
use crate::tx::Bounds;
use crate::verdict::{Reason, Refusal};

/// The estimate plus half, as prices and state change, within the caps; and its highest fee. It
/// differs from those of transactions with the nonce that are `in_doubt`, which is their number:
/// the same calls for the same price would be the same transaction.
pub(super) fn bounds(
    estimate: &Bounds,
    settings: &Settings,
    in_doubt: usize,
) -> Result<(Bounds, u128), Refusal> {
    let margin = |(amount, price): (u64, u128)| {
        (amount.saturating_add(amount / 2), price.saturating_add(price / 2))
    };
    let [l1_gas, l1_data_gas, l2_gas] =
        [estimate.l1_gas, estimate.l1_data_gas, estimate.l2_gas].map(margin);
    let mut bounds = Bounds { l1_gas, l1_data_gas, l2_gas };
    match bounds.max_fee() {
        Some(fee) if fee <= settings.max_fee && l2_gas.0 <= settings.max_l2_gas => {
            let in_doubt = u128::try_from(in_doubt).unwrap_or(u128::MAX);
            bounds.l1_data_gas.1 = bounds.l1_data_gas.1.saturating_add(in_doubt);
            Ok((bounds, fee))
        }
        _ => {
            let message = "the chain's price of the write is over the configured bound";
            Err(Refusal::new(Reason::FeeBoundExceeded, message))
        }
    }
}
