//! Simulations: pure decisions in a world that is made of chance and virtual time.
//!
//! Reading order: `toolkit` (chance, replay, shrinking), `leases` (the fleet's leases), `writes` (the
//! relay's writes) with `tables` (its rows).

mod leases;
mod tables;
mod toolkit;
mod writes;
