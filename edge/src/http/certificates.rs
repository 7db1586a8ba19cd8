//! The certificates of new handshakes. A reload or a renewal replaces them, and one that was
//! unusable at the start is read again until it can be used.

use super::challenges::Challenges;
use super::tls::{Identities, Identity, Presented, TlsError};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use portcullis_base::config::TlsConfig;
use portcullis_base::secrets::tickets::{SharedTickets, Tickets};
use portcullis_base::telemetry::{BySurface, Surface};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// The certificates in force. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    presented: Arc<BySurface<ArcSwap<Presented>>>,
    /// The ACME challenges of pending orders.
    pub challenges: Challenges,
    /// The key that a fleet encrypts session tickets with.
    pub tickets: SharedTickets,
    /// Order statuses by certificate file.
    orders: Arc<Mutex<HashMap<PathBuf, OrderStatus>>>,
    /// Counts reloads.
    reloads: watch::Sender<u64>,
}

/// The status of a certificate order.
#[derive(Clone, Debug, Default)]
pub struct OrderStatus {
    /// The next step, or why the last attempt failed and when the next one is due; empty once the
    /// certificate is there.
    pub words: String,
    /// Whether the last attempt failed.
    pub has_failed: bool,
}

impl Certificates {
    /// Replaces the certificates for all later handshakes, and returns the surfaces whose
    /// certificate changed. An ordered certificate replaces its predecessor once it is there.
    pub fn change(&self, identities: &Identities) -> Vec<(Surface, Arc<Identity>)> {
        let places = Surface::ALL
            .into_iter()
            .zip(self.presented.iter())
            .zip(&identities.0);
        let changed = places.filter_map(|((surface, place), presented)| {
            let presented = presented
                .or_previous(&place.load())
                .sealed_by(self.sealer(surface));
            let before = place.swap(Arc::clone(&presented));
            let identity = presented.identity()?;
            (!presented.is_same(&before)).then(|| (surface, Arc::clone(identity)))
        });
        let changed = changed.collect();
        self.reloads.send_modify(|count| *count += 1);
        changed
    }

    /// Returns new ticket keys for a listener: a reload invalidates its session tickets, unless the
    /// fleet shares a key.
    fn sealer(&self, surface: Surface) -> Arc<Tickets> {
        Arc::new(Tickets::new(surface.name(), self.tickets.clone()))
    }

    /// Returns a counter that changes with each reload.
    pub fn reloads(&self) -> watch::Receiver<u64> {
        self.reloads.subscribe()
    }

    /// Stores the order status of the certificate in `file`.
    pub fn report(&self, file: &Path, status: OrderStatus) {
        self.orders.lock().insert(file.to_owned(), status);
    }

    /// The order status of a surface's certificate; `None` if it is not ordered.
    pub fn order(&self, surface: Surface) -> Option<OrderStatus> {
        let presented = self.presented(surface);
        let config = presented.config().filter(|config| config.is_ordered())?;
        Some(
            self.orders
                .lock()
                .get(&config.certificate_file)
                .cloned()
                .unwrap_or_default(),
        )
    }

    /// The listeners whose certificates are ordered, each with its configuration.
    pub fn ordered(&self) -> Vec<(Surface, TlsConfig)> {
        let all = Surface::ALL.into_iter().filter_map(|surface| {
            let config = self
                .presented(surface)
                .config()
                .filter(|of| of.is_ordered())
                .cloned();
            Some((surface, config?))
        });
        all.collect()
    }

    /// Reads the certificate in `file` again, for every listener that has it.
    pub fn read_again(&self, file: &Path) {
        for (surface, config) in self.ordered() {
            if config.certificate_file == file {
                let before = self.presented(surface);
                let (presented, errors) = Presented::load(surface, &config);
                if errors.is_empty() && !presented.is_same(&before) {
                    // a concurrent reload takes precedence
                    let place = &self.presented[surface as usize];
                    let presented = Arc::new(presented).sealed_by(self.sealer(surface));
                    place.compare_and_swap(&before, presented);
                }
            }
        }
    }

    /// How the listener of a surface treats new connections.
    pub(super) fn presented(&self, surface: Surface) -> Arc<Presented> {
        self.presented[surface as usize].load_full()
    }

    /// The certificate of a surface; `None` without TLS, or without a usable certificate.
    pub fn of(&self, surface: Surface) -> Option<Arc<Identity>> {
        self.presented(surface).identity().cloned()
    }

    /// Whether a surface accepts TLS only.
    pub fn is_secured(&self, surface: Surface) -> bool {
        !matches!(*self.presented(surface), Presented::Nothing)
    }

    /// Reads the files of an unusable certificate again. Returns why the surface still has no
    /// certificate; `None` if it has one or needs none.
    pub fn retry(&self, surface: Surface) -> Option<String> {
        let presented = self.presented(surface);
        let Presented::Unusable(config) = &*presented else {
            return None;
        };
        match Presented::load(surface, config) {
            (Presented::Unusable(_), errors) => Some(TlsError::join(&errors)),
            (usable, _) => {
                log::info!(surface = surface.name(); "the certificate can be used now");
                // a concurrent reload takes precedence
                let usable = Arc::new(usable).sealed_by(self.sealer(surface));
                self.presented[surface as usize].compare_and_swap(&presented, usable);
                None
            }
        }
    }
}
