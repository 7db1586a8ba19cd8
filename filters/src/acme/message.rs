//! The messages between the decisions and their driver: actions out, events in.

use super::failure::{Class, Failure};
use super::progress::{Begun, Progress, Receipt};
use super::schedule::Window;
use crate::certificate::{self, Offered, Unfit, Validity};
use crate::chance::Chance;
use crate::named::named;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// A certificate whose private key is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The DNS names that it is for.
    pub names: Vec<String>,
    /// When it is valid.
    pub validity: Validity,
    /// The size of its chain in DER.
    pub chain_bytes: usize,
    /// Its digest in hexadecimal.
    pub digest: String,
    /// Fixed for each certificate.
    pub chance: Chance,
    /// Its identifier at its authority (RFC 9773, section 4.1), if it has one.
    pub id: Option<String>,
}

impl Certificate {
    /// Judges the certificate by itself.
    pub(super) fn judge(&self, domains: &[String], now: u64) -> Result<(), Unfit> {
        let offered = Offered {
            names: &self.names,
            validity: self.validity,
            chain_bytes: self.chain_bytes,
        };
        certificate::judge(&offered, domains, now)
    }
}

/// The stored state of a certificate.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The certificate in the file, if it can be read.
    pub ours: Option<Certificate>,
    /// The fleet's, if it can be read and is another one.
    pub theirs: Option<Certificate>,
    /// Whether the fleet's store answered and has another content than the file, readable or not.
    pub differs: bool,
    /// The stored progress.
    pub progress: Progress,
    /// The record of the last certificate that was issued.
    pub receipt: Option<Receipt>,
    /// Whether there is an account at the authority.
    pub has_account: bool,
}

named! {
    /// The status of an order: RFC 8555, section 7.1.6.
    pub enum OrderStatus {
        /// Its domains are not proven yet.
        Pending = "Pending",
        /// It can be finalized.
        Ready = "Ready",
        /// The certificate is being issued.
        Processing = "Processing",
        /// The certificate can be downloaded.
        Valid = "Valid",
        /// It has failed.
        Invalid = "Invalid",
    }
}

/// An order as the authority shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its status.
    pub status: OrderStatus,
    /// When the authority forgets it, in seconds since 1970.
    pub expires: Option<u64>,
    /// The seconds that the authority wants between two polls.
    pub pause: Option<u64>,
}

/// An authorization of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// The domain to prove.
    pub domain: String,
    /// Whether it waits for a proof.
    pub is_pending: bool,
    /// The challenges that the authority offers.
    pub offers: Vec<Challenge>,
}

named! {
    /// How a domain is proven.
    pub enum Challenge {
        /// By a handshake on port 443: RFC 8737.
        TlsAlpn01 = "tls-alpn-01",
        /// By a request to port 80: RFC 8555, section 8.3.
        Http01 = "http-01",
    }
}

/// The right to order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// It is held until the rest.
    Held,
    /// Another process holds it.
    Other,
}

/// The next action.
#[derive(Clone, Debug)]
pub enum Action {
    /// Read the stored state: [`Event::Seen`].
    Look,
    /// Write the fleet's certificate to the file.
    Take,
    /// Write the file's certificate to the fleet's store.
    Share,
    /// Ask the authority when to renew the certificate that was issued last, or else the one in
    /// use: [`Event::Window`].
    AskWindow,
    /// Take the right to order: [`Event::Lock`].
    Lock,
    /// Store the progress; remove it if it is empty.
    Store(Progress),
    /// Store what is known of the last certificate.
    StoreReceipt(Receipt),
    /// Read the account, or create it.
    OpenAccount,
    /// Remove the account, which the authority does not know.
    ForgetAccount,
    /// Continue this order: [`Event::Order`].
    Resume(Begun),
    /// Place an order, which names the certificate in use as replaced: [`Event::Placed`].
    PlaceReplacing,
    /// Place an order: [`Event::Placed`].
    Place,
    /// Fetch the authorizations: [`Event::Authorizations`].
    Authorize,
    /// Let every process answer the pending challenges of this type, and have them validated.
    Prove(Challenge),
    /// Fetch the order after this time: [`Event::Order`].
    Poll(Duration),
    /// Send the signing request: [`Event::Order`].
    Finalize,
    /// Fetch the problems of the challenges: [`Event::Causes`].
    FindCauses,
    /// Fetch the certificate: [`Event::Issued`].
    Download,
    /// Write the certificate that was downloaded, to the fleet's store and to the file.
    Install,
    /// Release the right to order, and wait.
    Rest(Box<Rest>),
}

/// The end of a round.
#[derive(Clone, Debug)]
pub struct Rest {
    /// When the next round begins at the latest, in seconds since 1970.
    pub until: u64,
    /// The state to show; `None` leaves the shown one.
    pub report: Option<Report>,
    /// How the attempt of this round ended, if there was one.
    pub ended: Option<Ended>,
    /// Attempts in a row that failed.
    pub failed: u32,
}

/// The state of a certificate for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Nothing is due.
    Fine,
    /// The last attempt failed.
    Failing {
        /// The reason for people.
        cause: String,
        /// The number of the next attempt.
        attempt: u32,
        /// The time of that attempt, in seconds since 1970.
        at: u64,
    },
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A new certificate was obtained.
    Issued,
    /// It failed; [`Report::Failing`] says why.
    Failed {
        /// The kind of failure.
        class: Class,
        /// Whether its order is abandoned.
        is_abandoned: bool,
    },
}

/// The result of the last action.
#[derive(Debug)]
pub enum Event {
    /// A round begins.
    Begin,
    /// The action without a result is done.
    Done,
    /// The action could not be done.
    Failed(Failure),
    /// The stored state.
    Seen(Box<Seen>),
    /// The authority's suggestion, and the seconds to the next poll; `None` without one.
    Window(Option<(Window, u64)>),
    /// The right to order.
    Lock(Lock),
    /// The order.
    Order(Order),
    /// A new order, with its URL and the new key of its certificate.
    Placed(Begun, Order),
    /// The authorizations of the order.
    Authorizations(Vec<Authorization>),
    /// The problems of the challenges in words; empty if there is none.
    Causes(String),
    /// The certificate, or why it cannot be used with its key.
    Issued(Result<Box<Certificate>, String>),
}
