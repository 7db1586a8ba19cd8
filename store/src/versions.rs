//! The versions of the tables, and the migrations between them.

use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// A version of the tables.
pub(super) struct Version {
    number: i64,
    name: &'static str,
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

/// The version `$number`, whose SQL is in the file `$file` of each database.
macro_rules! version {
    ($number:literal, $name:literal, $file:literal) => {
        Version {
            number: $number,
            name: $name,
            sqlite: include_str!(concat!("migrations/sqlite/", $file)),
            postgres: include_str!(concat!("migrations/postgres/", $file)),
        }
    };
}

/// The version of the tables that this program uses.
pub(super) const NEWEST: i64 = VERSIONS[VERSIONS.len() - 1].number;

/// All versions in order. A released version never changes.
const VERSIONS: [Version; 21] = [
    version!(1, "relay", "0001_relay.sql"),
    version!(2, "sidecar", "0002_sidecar.sql"),
    version!(3, "search", "0003_search.sql"),
    version!(4, "sitemap", "0004_sitemap.sql"),
    version!(5, "lists", "0005_lists.sql"),
    version!(6, "key_epochs", "0006_key_epochs.sql"),
    version!(7, "moderation", "0007_moderation.sql"),
    version!(8, "chain_epoch", "0008_chain_epoch.sql"),
    version!(9, "budgets", "0009_budgets.sql"),
    version!(10, "displaced", "0010_displaced.sql"),
    version!(11, "pruning", "0011_pruning.sql"),
    version!(12, "unplaced", "0012_unplaced.sql"),
    version!(13, "age_reports", "0013_age_reports.sql"),
    version!(14, "forgotten", "0014_forgotten.sql"),
    version!(15, "rules", "0015_rules.sql"),
    version!(16, "podcasting", "0016_podcasting.sql"),
    version!(17, "appeared", "0017_appeared.sql"),
    version!(18, "dates", "0018_dates.sql"),
    version!(19, "events", "0019_events.sql"),
    version!(20, "removed", "0020_removed.sql"),
    version!(21, "refusals", "0021_refusals.sql"),
];

/// Creates a migrator, to be run in one transaction: another process sees all versions or none,
/// never one in between. Its own lock is off, as it would be released before the commit.
pub(super) fn migrator(text: impl Fn(&Version) -> &'static str) -> Migrator {
    let migration = |version: &Version| {
        let sql = text(version).into_sql_str();
        Migration::new(
            version.number,
            version.name.into(),
            MigrationType::Simple,
            sql,
            false,
        )
    };
    let mut migrator = Migrator::with_migrations(VERSIONS.iter().map(migration).collect());
    migrator.set_locking(false);
    migrator
}
