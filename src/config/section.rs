//! Rows of keys.
//!
//! Each section is written once, as rows of [`section!`] next to the struct they fill: `acme.rs`,
//! `fleet.rs`, `gateway.rs`, `relay.rs`, `sidecar.rs`, `process.rs`, `surface.rs` and `trace.rs`.
//! The rows generate the fields, the keys with names and defaults, the code that reads them, and
//! `conf/portcullis.toml`.

/// Rows of keys: `name = Default(literal) live;` under the lines of its comment. A key without
/// `live` needs a restart.
macro_rules! keys {
    ($section:literal: $(
        $(#[doc = $doc:literal])+
        $key:ident = $kind:ident($literal:tt) $($live:ident)?;
    )*) => {
        &[$($crate::config::key::Key {
            path: concat!($section, ".", stringify!($key)),
            default: $crate::config::key::DefaultValue::$kind(stringify!($literal)),
            doc: &[$($doc),+],
            live: $crate::config::section::keys!(@ $($live)?),
        }),*]
    };
    (@ live) => { true };
    (@) => { false };
}
pub(super) use keys;

/// A section with its struct: `name: Type = Default(literal), conversion, live;` under the lines of
/// its comment. Other fields follow in `with reader { … }`.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $section:literal $name:ident {$(
            $(#[doc = $doc:literal])+
            $key:ident: $type:ty = $kind:ident($literal:tt), $convert:expr $(, $live:ident)?;
        )*}
        $(with $reader:ident {$(
            $(#[doc = $part_doc:literal])+
            $part:ident: $part_type:ty = $read:expr;
        )+})?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $key: $type,)*
            $($($(#[doc = $part_doc])+ pub $part: $part_type,)+)?
        }

        impl $name {
            pub(super) const SECTION: $crate::config::key::Section =
                $crate::config::key::Section {
                    path: $section,
                    about: &[$($about),+],
                    keys: $crate::config::section::keys! { $section:
                        $($(#[doc = $doc])+ $key = $kind($literal) $($live)?;)*
                    },
                };

            pub(super) fn read(reader: &mut $crate::config::reader::Reader<'_>) -> Self {
                $(let $key = reader.take(concat!($section, ".", stringify!($key)), $convert);)*
                $(let $reader = reader; $(let $part = $read;)+)?
                Self { $($key,)* $($($part,)+)? }
            }
        }
    };
}
pub(super) use section;
