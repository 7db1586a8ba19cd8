//! Simulations: pure decisions in a world that is made of chance and virtual time.
//!
//! Reading order: `toolkit` (chance, replay, shrinking), `leases` (the fleet's leases), `writes` (the
//! relay's writes) with `tables` (its rows) and `mistakes` (planted in its code).

mod contract;
mod contract_table;
mod leases;
mod mistakes;
mod tables;
mod toolkit;
mod writes;
