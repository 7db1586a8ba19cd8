//! The check of the epoch during other work.

use super::script::Script;
use super::{EPOCH, run};
use crate::txm::pins::check_epoch_during;
use crate::verdict::Reason;
use core::time::Duration;

#[test]
fn a_check_that_is_older_than_ten_seconds_is_made_again() {
    for (seconds, expected) in [(10, Ok(())), (11, Err(Some(Reason::PinsUnproven)))] {
        let script = Script::new();
        let work = async {
            script.state().now += Duration::from_secs(seconds);
            script.state().anchor = Ok("another".into());
        };
        let (checked, ()) = run(check_epoch_during(&script, EPOCH, work));
        assert_eq!(
            checked.map_err(|outcome| outcome.reason()),
            expected,
            "{seconds} s"
        );
    }
}
