//! Session tickets: sessions that clients store, sealed (RFC 8446, section 4.6.1; RFC 5077). They
//! take no memory here.
//!
//! A process seals with keys of its own, which change every six hours. In a fleet it seals with the
//! [`TicketKey`] that the instances share, so that a client resumes at any of them; a ticket also
//! opens with the key before that. A ticket names its key, and is for one listener.

use parking_lot::RwLock;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::crypto::ring::Ticketer;
use rustls::server::ProducesTickets;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

const NAME_LEN: usize = 16;
const KEY_LEN: usize = 32;

/// A key that the instances of a fleet share, with its name.
pub struct TicketKey {
    name: [u8; NAME_LEN],
    key: LessSafeKey,
}

impl TicketKey {
    /// The number of bytes that a key is made of.
    pub const LEN: usize = NAME_LEN + KEY_LEN;

    /// The key that these random bytes are.
    pub fn new(bytes: &[u8; Self::LEN]) -> Self {
        let (name, key) = bytes.split_at(NAME_LEN);
        let key = UnboundKey::new(&AES_256_GCM, key).expect("it has as many bytes");
        let name = name.try_into().expect("it has as many bytes");
        Self { name, key: LessSafeKey::new(key) }
    }

    fn data(&self, listener: &str) -> Aad<Vec<u8>> {
        Aad::from([&self.name, listener.as_bytes()].concat())
    }

    fn seal(&self, listener: &str, session: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = session.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(unique, self.data(listener), &mut sealed).ok()?;
        Some([&self.name[..], &nonce, &sealed].concat())
    }

    fn open(&self, listener: &str, ticket: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = ticket.strip_prefix(&self.name)?.split_first_chunk()?;
        let mut session = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key.open_in_place(nonce, self.data(listener), &mut session).ok()?.len();
        session.truncate(length);
        Some(session)
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
    /// Seals with this key from now on; `None` ends that, and what it sealed opens no more.
    pub fn share(&self, key: Option<TicketKey>) {
        let mut keys = self.0.write();
        let [present, previous] = &mut *keys;
        match key {
            Some(key) if present.as_ref().is_some_and(|present| present.name == key.name) => {}
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
pub(crate) struct Tickets {
    listener: &'static str,
    shared: SharedTickets,
    /// The keys of this process. They are dated by a clock that panics before 1970: there are no
    /// tickets then.
    own: OnceLock<Option<Arc<dyn ProducesTickets>>>,
}

impl Tickets {
    /// Seals for the listener of this name.
    pub(crate) fn new(listener: &'static str, shared: SharedTickets) -> Self {
        Self { listener, shared, own: OnceLock::new() }
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
        assert_eq!(tickets(&other).decrypt(&alone), None, "each has keys of its own");
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
        assert_eq!(of_one.decrypt(&sealed).unwrap(), b"session", "the key before");
        shared.share(Some(key(3)));
        assert_eq!(of_one.decrypt(&sealed), None);
        let sealed = of_one.encrypt(b"session").unwrap();
        shared.share(None);
        assert_eq!(of_one.decrypt(&sealed), None, "the fleet's store was away for long");
        let own = of_one.encrypt(b"session").unwrap();
        assert_eq!(of_one.decrypt(&own).unwrap(), b"session");
    }
}
