//! The certificates of new handshakes. A reload replaces them, and one that was unusable at the
//! start is read again until it can be used.

use super::tls::{Identities, Identity, Presented, TlsError};
use crate::telemetry::{BySurface, Surface};
use arc_swap::ArcSwap;
use std::sync::Arc;

/// The certificates in force. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Certificates(Arc<BySurface<ArcSwap<Presented>>>);

impl Certificates {
    /// Puts these in the place of those before, for every handshake from now on. Returns the
    /// surfaces that have another certificate now.
    pub fn change(&self, identities: &Identities) -> Vec<(Surface, Arc<Identity>)> {
        let places = Surface::ALL.into_iter().zip(self.0.iter()).zip(&identities.0);
        let changed = places.filter_map(|((surface, place), presented)| {
            let before = place.swap(Arc::clone(presented));
            let identity = presented.identity()?;
            let is_same = before.identity().is_some_and(|before| before.is_same(identity));
            (!is_same).then(|| (surface, Arc::clone(identity)))
        });
        changed.collect()
    }

    /// The treatment of new connections at the listener of a surface.
    pub(super) fn presented(&self, surface: Surface) -> Arc<Presented> {
        self.0[surface as usize].load_full()
    }

    /// The certificate of a surface; `None` if it speaks in the clear, or has no usable one.
    pub fn of(&self, surface: Surface) -> Option<Arc<Identity>> {
        self.presented(surface).identity().cloned()
    }

    /// Whether a surface never speaks in the clear.
    pub fn is_secured(&self, surface: Surface) -> bool {
        !matches!(*self.presented(surface), Presented::Nothing)
    }

    /// Why a surface has no certificate, after its files were read again: `None` if it has one or
    /// needs none.
    pub(crate) fn retry(&self, surface: Surface) -> Option<String> {
        let presented = self.presented(surface);
        let Presented::Unusable(config) = &*presented else { return None };
        match Presented::load(surface, config) {
            (Presented::Unusable(_), errors) => Some(TlsError::join(&errors)),
            (usable, _) => {
                log::info!(surface = surface.name(); "the certificate can be used now");
                // a reload meanwhile knows better
                self.0[surface as usize].compare_and_swap(&presented, Arc::new(usable));
                None
            }
        }
    }
}
