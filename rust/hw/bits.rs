// SPDX-License-Identifier: GPL-2.0

//! Bit fields of 32-bit hardware words.
//!
//! [`fields!`] declares a word type with named fields. Users name fields and values and never
//! write a shift or a mask:
//!
//! ```text
//! let word = HqdQuantum::new()
//!     .with(HqdQuantum::EN, 1)
//!     .with(HqdQuantum::DURATION, 1);
//! ```

use core::fmt;
use core::marker::PhantomData;

/// Position of a field inside the word type `T`.
pub(crate) struct Field<T> {
    name: &'static str,
    lo: u32,
    width: u32,
    word: PhantomData<fn() -> T>,
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Field<T> {}

impl<T> Field<T> {
    /// Declares bits `hi` down to `lo`.
    pub(crate) const fn new(name: &'static str, hi: u32, lo: u32) -> Self {
        assert!(hi < 32 && lo <= hi, "a field lies inside its word");
        Self {
            name,
            lo,
            width: hi - lo + 1,
            word: PhantomData,
        }
    }

    /// Name as in the register headers.
    pub(crate) const fn name(self) -> &'static str {
        self.name
    }

    /// Largest value that the field holds.
    pub(crate) const fn max(self) -> u32 {
        u32::MAX >> (32 - self.width)
    }

    /// The field's bits in place.
    pub(crate) const fn mask(self) -> u32 {
        self.max() << self.lo
    }

    /// `word` with this field replaced by `value`, of which surplus bits are dropped.
    pub(crate) const fn insert(self, word: u32, value: u32) -> u32 {
        (word & !self.mask()) | ((value & self.max()) << self.lo)
    }

    /// The field's value in `word`.
    pub(crate) const fn extract(self, word: u32) -> u32 {
        (word >> self.lo) & self.max()
    }
}

/// A value does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// Name of the field.
    pub(crate) field: &'static str,
    /// The offending value.
    pub(crate) value: u64,
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} does not fit {}", self.value, self.field)
    }
}

/// Declares a 32-bit word type with fields given as `NAME [hi:lo]`.
macro_rules! fields {
    (
        $(#[$meta:meta])*
        $vis:vis struct $word:ident {
            $($(#[$field_meta:meta])* $field:ident [$hi:literal : $lo:literal];)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq)]
        $vis struct $word(u32);

        impl $word {
            $(
                $(#[$field_meta])*
                $vis const $field: $crate::hw::bits::Field<Self> =
                    $crate::hw::bits::Field::new(stringify!($field), $hi, $lo);
            )*

            /// All declared fields, for dumps.
            $vis const FIELDS: &'static [$crate::hw::bits::Field<Self>] = &[$(Self::$field),*];

            /// The word with all bits clear.
            $vis const fn new() -> Self {
                Self(0)
            }

            /// The word as read from hardware.
            $vis const fn from_raw(raw: u32) -> Self {
                Self(raw)
            }

            /// The word as hardware takes it.
            $vis const fn raw(self) -> u32 {
                self.0
            }

            /// This word with `field` set to `value`; surplus bits of `value` are dropped.
            $vis const fn with(self, field: $crate::hw::bits::Field<Self>, value: u32) -> Self {
                debug_assert!(value <= field.max());
                Self(field.insert(self.0, value))
            }

            /// This word with a one-bit `field` set to `on`.
            $vis const fn with_flag(
                self,
                field: $crate::hw::bits::Field<Self>,
                on: bool,
            ) -> Self {
                // CAST: A `bool` is 0 or 1.
                Self(field.insert(self.0, on as u32))
            }

            /// This word with `field` set to `value`.
            ///
            /// # Errors
            ///
            /// `Overflow` if `value` is wider than the field.
            $vis const fn try_with(
                self,
                field: $crate::hw::bits::Field<Self>,
                value: u32,
            ) -> Result<Self, $crate::hw::bits::Overflow> {
                if value > field.max() {
                    Err($crate::hw::bits::Overflow {
                        field: field.name(),
                        value: $crate::hw::num::widen(value),
                    })
                } else {
                    Ok(Self(field.insert(self.0, value)))
                }
            }

            /// Value of `field`.
            $vis const fn get(self, field: $crate::hw::bits::Field<Self>) -> u32 {
                field.extract(self.0)
            }

            /// Whether `field` is not zero.
            $vis const fn is_set(self, field: $crate::hw::bits::Field<Self>) -> bool {
                field.extract(self.0) != 0
            }

            /// Bits that belong to no declared field.
            $vis const fn undeclared(self) -> u32 {
                self.0 & !(0 $(| Self::$field.mask())*)
            }
        }

        impl ::core::fmt::Display for $word {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                write!(f, "{:#010x}", self.0)?;
                for field in Self::FIELDS {
                    if self.is_set(*field) {
                        write!(f, " {}={:#x}", field.name(), self.get(*field))?;
                    }
                }
                Ok(())
            }
        }

        impl ::core::fmt::Debug for $word {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                write!(f, concat!(stringify!($word), "({})"), self)
            }
        }
    };
}
pub(crate) use fields;
