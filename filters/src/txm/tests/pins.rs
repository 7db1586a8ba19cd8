//! The check of the epoch during other work.

use super::script::Script;
use super::{EPOCH, run};
use crate::txm::pins::{EpochError, check_epoch, check_epoch_during};
use core::time::Duration;

#[test]
fn a_check_that_is_older_than_ten_seconds_is_made_again() {
    for (seconds, expected) in [(10, Ok(())), (11, Err(EpochError::Restarted))] {
        let script = Script::new();
        let work = async {
            script.state().now += Duration::from_secs(seconds);
            script.state().anchor = Ok("another".into());
        };
        let (checked, ()) = run(check_epoch_during(&script, EPOCH, work));
        assert_eq!(checked, expected, "{seconds} s");
    }
}

#[test]
fn a_write_of_a_former_epoch_keeps_the_proof() {
    for (proven, dropped) in [("another", &[][..]), (EPOCH, &["forgets the proof"])] {
        let script = Script::new();
        script.state().anchor = Ok("another".into());
        script.state().proven = Ok(proven.into());
        let checked = run(check_epoch(&script, EPOCH));
        assert_eq!(checked, Err(EpochError::Restarted));
        assert_eq!(script.done(), dropped, "the proof is of {proven}");
    }
}
