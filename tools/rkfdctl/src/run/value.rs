// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Kernel arguments as people write them.

use std::fmt;

/// More bytes than a buffer from the command line is to have.
const MOST: usize = 1 << 30;

macro_rules! kinds {
    ($($variant:ident $ty:ident),*) => {
        /// A type of numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $( $variant, )*
        }

        /// A number.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Number {
            $( $variant($ty), )*
        }

        impl Kind {
            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    $( stringify!($ty) => Ok(Self::$variant), )*
                    _ => Err(format!("{text:?} is no type: {}", [$( stringify!($ty) ),*].join(" "))),
                }
            }

            fn size(self) -> usize {
                match self {
                    $( Self::$variant => size_of::<$ty>(), )*
                }
            }

            fn number(self, text: &str) -> Result<Number, String> {
                let text = text.trim();
                let wrong = || format!("{text:?} is no number of its type");
                Ok(match self {
                    $( Self::$variant => Number::$variant(text.parse().map_err(|_| wrong())?), )*
                })
            }

            fn count(self, n: u32) -> Number {
                // CAST: a count in another type of numbers; it wraps where that is small.
                match self {
                    $( Self::$variant => Number::$variant(n as $ty), )*
                }
            }
        }

        impl Number {
            /// Its bytes.
            pub fn bytes(&self) -> Vec<u8> {
                match self {
                    $( Self::$variant(n) => n.to_le_bytes().to_vec(), )*
                }
            }

            /// All that there are in `bytes`.
            pub fn all(kind: Kind, bytes: &[u8]) -> Vec<Self> {
                let chunks = bytes.chunks_exact(kind.size());
                chunks
                    .filter_map(|chunk| match kind {
                        $( Kind::$variant => Some(Self::$variant($ty::from_le_bytes(chunk.try_into().ok()?))), )*
                    })
                    .collect()
            }
        }

        impl fmt::Display for Number {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $( Self::$variant(n) => n.fmt(f), )*
                }
            }
        }
    };
}

kinds!(U8 u8, U32 u32, I32 i32, U64 u64, F32 f32, F64 f64);

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// A number.
    Number(Number),
    /// A buffer, and what it has at first.
    Buffer {
        /// What is in it.
        kind: Kind,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Bytes of group memory.
    Local(u32),
}

impl Given {
    /// Reads `TYPE:NUMBER`, `TYPE:[NUMBER,…]`, `TYPE*COUNT`, `TYPE*COUNT=iota` or `local:BYTES`.
    ///
    /// # Errors
    /// A sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(bytes) = text.strip_prefix("local:") {
            let bytes = bytes.parse();
            return Ok(Self::Local(
                bytes.map_err(|_| "local: wants a number of bytes")?,
            ));
        }
        if let Some((kind, count)) = text.split_once('*') {
            return Self::counted(Kind::parse(kind)?, count);
        }
        let (kind, value) = text
            .split_once(':')
            .ok_or("neither TYPE:NUMBER, TYPE:[…], TYPE*COUNT nor local:BYTES")?;
        let kind = Kind::parse(kind)?;
        let list = value.strip_prefix('[').and_then(|v| v.strip_suffix(']'));
        let Some(list) = list else {
            return Ok(Self::Number(kind.number(value)?));
        };
        let mut bytes = Vec::new();
        for number in list.split(',') {
            bytes.extend(kind.number(number)?.bytes());
        }
        Ok(Self::Buffer { kind, bytes })
    }

    fn counted(kind: Kind, count: &str) -> Result<Self, String> {
        let (count, iota) = match count.split_once('=') {
            None => (count, false),
            Some((count, "iota")) => (count, true),
            Some((_, other)) => return Err(format!("{other:?} is not iota")),
        };
        let count: u32 = count
            .parse()
            .map_err(|_| format!("{count:?} is no count"))?;
        // CAST: 32 bits into 64.
        let size = (count as usize).saturating_mul(kind.size());
        if size == 0 || size > MOST {
            return Err(format!(
                "a buffer of {count} numbers: 1 to 1 GiB of them can be"
            ));
        }
        let bytes = if iota {
            (0..count).flat_map(|n| kind.count(n).bytes()).collect()
        } else {
            vec![0; size]
        };
        Ok(Self::Buffer { kind, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        assert_eq!(Given::parse("u32:7"), Ok(Given::Number(Number::U32(7))));
        assert_eq!(
            Given::parse("f32:-1.5"),
            Ok(Given::Number(Number::F32(-1.5)))
        );
        assert_eq!(Given::parse("local:1024"), Ok(Given::Local(1024)));
        let buffer = |kind, bytes: &[u8]| {
            let bytes = bytes.to_vec();
            Ok(Given::Buffer { kind, bytes })
        };
        assert_eq!(
            Given::parse("u8:[1, 2,255]"),
            buffer(Kind::U8, &[1, 2, 255])
        );
        assert_eq!(Given::parse("u64*2"), buffer(Kind::U64, &[0; 16]));
        assert_eq!(
            Given::parse("i32*3=iota"),
            buffer(Kind::I32, &[0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])
        );
    }

    #[test]
    fn arguments_that_cannot_be_are_refused() {
        for (text, why) in [
            ("7", "neither"),
            ("int:7", "is no type"),
            ("u32:x", "is no number"),
            ("u8:256", "is no number"),
            ("u32:[1,]", "is no number"),
            ("u32*0", "1 to 1 GiB"),
            ("u64*200000000", "1 to 1 GiB"),
            ("u32*4=zero", "is not iota"),
            ("local:much", "number of bytes"),
        ] {
            let error = Given::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_are_shown_as_they_are() {
        let shown = |kind, bytes: &[u8]| {
            let all = Number::all(kind, bytes);
            all.iter().map(Number::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            shown(Kind::I32, &[255, 255, 255, 255, 2, 0, 0, 0, 9]),
            ["-1", "2"]
        );
        assert_eq!(shown(Kind::F32, &1.25f32.to_le_bytes()), ["1.25"]);
    }
}
