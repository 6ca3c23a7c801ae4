//! Enums whose variants have fixed names in JSON.

/// Declares an enum with the names of its variants, so that written and read names are the same.
/// JSON has the name alone. A name that no variant has is kept as `Unknown`.
macro_rules! named {
    ($(#[$doc:meta])* $type:ident { $( $(#[$vdoc:meta])* $variant:ident = $name:literal, )* }) => {
        $(#[$doc])*
        #[derive(
            Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        #[serde(from = "String", into = "String")]
        pub enum $type {
            $( $(#[$vdoc])* $variant, )*
            /// A name unknown to this release, or none.
            Unknown(String),
        }

        impl $type {
            /// Its name in JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    $( $type::$variant => $name, )*
                    $type::Unknown(name) => name,
                }
            }
        }

        impl From<&str> for $type {
            fn from(name: &str) -> $type {
                match name {
                    $( $name => $type::$variant, )*
                    name => $type::Unknown(name.into()),
                }
            }
        }

        impl From<String> for $type {
            fn from(name: String) -> $type {
                name.as_str().into()
            }
        }

        impl From<$type> for String {
            fn from(named: $type) -> String {
                named.as_str().into()
            }
        }

        impl Default for $type {
            fn default() -> $type {
                $type::Unknown(String::new())
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use named;
