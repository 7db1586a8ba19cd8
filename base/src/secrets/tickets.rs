//! Session tickets: sessions that clients store, sealed (RFC 8446, section 4.6.1; RFC 5077). They
//! take no memory here.
//!
//! A process seals with keys of its own, which change every six hours. In a fleet it seals with the
//! [`TicketKey`] that the instances share, so that a client can resume at any of them; tickets of
//! the previous key still open. A ticket names its key, and is for one listener.

use super::seal::Seal;
use parking_lot::RwLock;
use rustls::crypto::ring::Ticketer;
use rustls::server::ProducesTickets;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

const NAME_LEN: usize = 16;

/// A key that the instances of a fleet share, with its name.
pub struct TicketKey {
    name: [u8; NAME_LEN],
    seal: Seal,
}

impl TicketKey {
    /// The number of bytes of a key with its name.
    pub const LEN: usize = NAME_LEN + Seal::KEY_LEN;

    /// Makes a key of random bytes.
    pub fn new(bytes: &[u8; Self::LEN]) -> Self {
        let (name, key) = bytes.split_first_chunk().expect("a name comes first");
        let key = key.try_into().expect("the rest is a key");
        Self {
            name: *name,
            seal: Seal::new(key),
        }
    }

    fn seal(&self, listener: &str, session: &[u8]) -> Option<Vec<u8>> {
        let sealed = self.seal.seal(listener.as_bytes(), session)?;
        Some([&self.name[..], &sealed].concat())
    }

    fn open(&self, listener: &str, ticket: &[u8]) -> Option<Vec<u8>> {
        self.seal
            .open(listener.as_bytes(), ticket.strip_prefix(&self.name)?)
    }
}

/// The shared key, and the one before it; neither without a fleet.
#[derive(Clone, Default)]
pub struct SharedTickets(Arc<RwLock<[Option<Arc<TicketKey>>; 2]>>);

impl std::fmt::Debug for SharedTickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedTickets")
    }
}

impl SharedTickets {
    /// Seals with this key from now on. `None` ends the sharing: tickets of shared keys no longer
    /// open.
    pub fn share(&self, key: Option<TicketKey>) {
        let mut keys = self.0.write();
        let [present, previous] = &mut *keys;
        match key {
            Some(key)
                if present
                    .as_ref()
                    .is_some_and(|present| present.name == key.name) => {}
            Some(key) => *previous = present.replace(Arc::new(key)),
            None => *keys = Default::default(),
        }
    }

    fn keys(&self) -> [Option<Arc<TicketKey>>; 2] {
        self.0.read().clone()
    }
}

/// Seals the sessions of one listener.
#[derive(Debug)]
pub struct Tickets {
    listener: &'static str,
    shared: SharedTickets,
    /// The keys of this process. Their clock panics before 1970, so there are no tickets then.
    own: OnceLock<Option<Arc<dyn ProducesTickets>>>,
}

impl Tickets {
    /// Creates the tickets of the listener with this name.
    pub fn new(listener: &'static str, shared: SharedTickets) -> Self {
        Self {
            listener,
            shared,
            own: OnceLock::new(),
        }
    }

    fn own(&self) -> Option<&dyn ProducesTickets> {
        let is_datable = SystemTime::now() >= SystemTime::UNIX_EPOCH;
        is_datable.then(|| self.own.get_or_init(|| Ticketer::new().ok()).as_deref())?
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.own().map_or(0, ProducesTickets::lifetime)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        match self.shared.keys() {
            [Some(present), _] => present.seal(self.listener, plain),
            [None, _] => self.own()?.encrypt(plain),
        }
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut keys = self.shared.keys().into_iter().flatten();
        let opened = keys.find_map(|key| key.open(self.listener, cipher));
        opened.or_else(|| self.own()?.decrypt(cipher))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> TicketKey {
        TicketKey::new(&[byte; TicketKey::LEN])
    }

    fn tickets(shared: &SharedTickets) -> Tickets {
        Tickets::new("gateway", shared.clone())
    }

    #[test]
    fn instances_with_one_key_open_each_other_s_tickets() {
        let [one, other] = [SharedTickets::default(), SharedTickets::default()];
        let alone = tickets(&one).encrypt(b"session").unwrap();
        assert_eq!(
            tickets(&other).decrypt(&alone),
            None,
            "each has keys of its own"
        );
        for shared in [&one, &other] {
            shared.share(Some(key(1)));
        }
        let sealed = tickets(&one).encrypt(b"session").unwrap();
        assert_eq!(tickets(&other).decrypt(&sealed).unwrap(), b"session");
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(tickets(&other).decrypt(&changed), None);
        let relay = Tickets::new("relay", other.clone());
        assert_eq!(relay.decrypt(&sealed), None, "a ticket is for one listener");
    }

    #[test]
    fn a_ticket_opens_until_the_key_after_the_next_one() {
        let shared = SharedTickets::default();
        shared.share(Some(key(1)));
        let of_one = tickets(&shared);
        let sealed = of_one.encrypt(b"session").unwrap();
        shared.share(Some(key(1)));
        shared.share(Some(key(2)));
        shared.share(Some(key(2)));
        assert_eq!(
            of_one.decrypt(&sealed).unwrap(),
            b"session",
            "the key before"
        );
        shared.share(Some(key(3)));
        assert_eq!(of_one.decrypt(&sealed), None);
        let sealed = of_one.encrypt(b"session").unwrap();
        shared.share(None);
        assert_eq!(
            of_one.decrypt(&sealed),
            None,
            "the fleet's store was away for long"
        );
        let own = of_one.encrypt(b"session").unwrap();
        assert_eq!(of_one.decrypt(&own).unwrap(), b"session");
    }
}
