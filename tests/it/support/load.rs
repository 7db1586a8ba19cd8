//! Requests that go on while something happens.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sends this request over and over while `work` runs; returns how many got another status than
/// 200, and how many were sent.
pub(crate) fn lost_during(ask: impl Fn() -> u16 + Sync, work: impl FnOnce()) -> (usize, usize) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut lost, mut all) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                lost += usize::from(ask() != 200);
                all += 1;
            }
            (lost, all)
        });
        let over = Over(&is_over);
        work();
        drop(over);
        reading.join().expect("it does not panic")
    })
}

/// Ends the requests, also when the work panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
