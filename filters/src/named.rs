//! Closed sets of names: the enum, the list of its values and the names, from one table.

/// Declares an enum whose values have names, with `ALL`, `name` and `parse`. Debug information
/// points to the enum's declaration, not to this file.
#[collapse_debuginfo(yes)]
#[macro_export]
macro_rules! named {
    (
        $(#[$about:meta])*
        pub enum $Set:ident { $($(#[$doc:meta])* $value:ident = $name:literal,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $Set {
            $($(#[$doc])* $value,)*
        }

        impl $Set {
            /// Every value, in the order of the table.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$value),*];

            /// The name on the wire, in logs and in metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)*
                }
            }

            /// The value with exactly this name.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$value),)*
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use named;
