//! Simulations: pure decisions in a world that is made of chance and virtual time.
//!
//! Reading order: `toolkit` (chance, replay, shrinking), `leases` (the fleet's leases), `routing`
//! (calls over the URLs of the node), `overload` (calls beyond its capacity), `chain` (what clients
//! are shown of the chain), `renewals` (certificates), `writes` (the relay's writes, and the events
//! that the backend is sent of them) with `tables` (its rows), and `mistakes` (planted in the code of
//! the last three).

mod chain;
mod contract;
mod contract_table;
mod leases;
mod mistakes;
mod overload;
mod planted;
mod renewals;
mod routing;
mod tables;
mod toolkit;
mod writes;
