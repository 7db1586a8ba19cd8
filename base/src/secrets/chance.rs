//! Chance for delays, from the kernel's random bytes.

use portcullis_filters::chance::Chance;
use ring::rand::{SecureRandom as _, SystemRandom};

/// Draws the chance for a delay. It is 0 if no random bytes are available; then all instances retry
/// at once.
pub fn drawn() -> Chance {
    let mut bytes = [0; 4];
    let _ = SystemRandom::new().fill(&mut bytes);
    Chance::from_bytes(bytes)
}
