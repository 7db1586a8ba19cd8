//! Rows of keys.
//!
//! Each section is written once, as rows of [`section!`] next to the struct they fill: `acme.rs`,
//! `fleet.rs`, `gateway.rs`, `relay.rs`, `sidecar.rs`, `process.rs`, `surface.rs` and `trace.rs`.
//! The rows generate the fields, the keys with names and defaults, the code that reads them, and
//! `conf/portcullis.toml`. Rows after `live` fill a struct that a reload hands over; a struct of
//! other rows cannot be part of it, because its reader is another one.

/// Rows of keys: `name = Default(literal);` under the lines of its comment. A reload applies those
/// after `live`; the others need a restart. `reread` and `reconnect` say when the content of a file
/// is read again that such a key names.
macro_rules! keys {
    (live $section:literal: $(
        $(#[doc = $doc:literal])+
        $key:ident = $kind:ident($literal:tt);
    )*) => {
        &[$($crate::config::section::keys!(@ Live, $section, $key, $kind, $literal, $($doc),+)),*]
    };
    ($section:literal: $(
        $(#[doc = $doc:literal])+
        $key:ident = $kind:ident($literal:tt) $($mark:ident)?;
    )*) => {
        &[$($crate::config::section::keys!(
            @ $($mark)?, $section, $key, $kind, $literal, $($doc),+
        )),*]
    };
    (@ , $($row:tt)+) => { $crate::config::section::keys!(@ Restart, $($row)+) };
    (@ reread, $($row:tt)+) => { $crate::config::section::keys!(@ Reread, $($row)+) };
    (@ reconnect, $($row:tt)+) => { $crate::config::section::keys!(@ Reconnect, $($row)+) };
    (
        @ $effect:ident, $section:literal, $key:ident, $kind:ident, $literal:tt, $($doc:literal),+
    ) => {
        $crate::config::key::Key {
            path: concat!($section, ".", stringify!($key)),
            default: $crate::config::key::DefaultValue::$kind(stringify!($literal)),
            doc: &[$($doc),+],
            effect: $crate::config::key::Effect::$effect,
        }
    };
}
pub(super) use keys;

/// A section with its struct: `name: Type = Default(literal), conversion;` under the lines of its
/// comment. Other fields follow in `with reader { … }`. After `more`, the rows continue a section
/// that another struct begins.
macro_rules! section {
    (
        @ [$($name_doc:literal),+] [$($about:literal),*] [$($live:ident)?] [$($from:tt)+]
        $section:literal $name:ident {$(
            $(#[doc = $doc:literal])+
            $key:ident: $type:ty = $kind:ident($literal:tt), $convert:expr $(, $mark:ident)?;
        )*}
        $(with $reader:ident {$(
            $(#[doc = $part_doc:literal])+
            $part:ident: $part_type:ty = $read:expr;
        )+})?
    ) => {
        $(#[doc = $name_doc])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $key: $type,)*
            $($($(#[doc = $part_doc])+ pub $part: $part_type,)+)?
        }

        impl $name {
            pub(super) const SECTION: $crate::config::key::Section =
                $crate::config::key::Section {
                    path: $section,
                    about: &[$($about),*],
                    keys: $crate::config::section::keys! { $($live)? $section:
                        $($(#[doc = $doc])+ $key = $kind($literal) $($mark)?;)*
                    },
                };

            pub(super) fn read(reader: &mut $($from)+) -> Self {
                $(let $key = reader.take(concat!($section, ".", stringify!($key)), $convert);)*
                $(let $reader = reader; $(let $part = $read;)+)?
                Self { $($key,)* $($($part,)+)? }
            }
        }
    };
    ($(#[doc = $about:literal])+ live $section:literal $($rows:tt)+) => {
        $crate::config::section::section! {
            @ [$($about),+] [$($about),+] [live] [$crate::config::reader::LiveReader<'_, '_>]
            $section $($rows)+
        }
    };
    ($(#[doc = $about:literal])+ more live $section:literal $($rows:tt)+) => {
        $crate::config::section::section! {
            @ [$($about),+] [] [live] [$crate::config::reader::LiveReader<'_, '_>]
            $section $($rows)+
        }
    };
    ($(#[doc = $about:literal])+ more $section:literal $($rows:tt)+) => {
        $crate::config::section::section! {
            @ [$($about),+] [] [] [$crate::config::reader::Reader<'_>] $section $($rows)+
        }
    };
    ($(#[doc = $about:literal])+ $section:literal $($rows:tt)+) => {
        $crate::config::section::section! {
            @ [$($about),+] [$($about),+] [] [$crate::config::reader::Reader<'_>]
            $section $($rows)+
        }
    };
}
pub(super) use section;
