// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Values of kernel arguments, and where they go.

use super::error::CodeError;
use super::error::Result;
use super::metadata::ArgumentKind;
use super::metadata::ArgumentMetadata;
use crate::memory::Buffer;

/// A value for an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An address of the GPU.
    Address(u64),
    /// The bytes of a number or structure.
    Bytes(Vec<u8>),
    /// As many bytes of group memory (`local T *` of OpenCL C): the argument is where they begin.
    Local(u32),
}

macro_rules! numbers {
    ($($ty:ty)*) => { $(
        impl From<$ty> for Value {
            fn from(number: $ty) -> Self {
                Self::Bytes(number.to_le_bytes().to_vec())
            }
        }
    )* };
}

numbers!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

impl From<&Buffer> for Value {
    fn from(buffer: &Buffer) -> Self {
        Self::Address(buffer.address())
    }
}

/// Bytes of kernel arguments as they are filled.
pub(super) struct Filling {
    pub(super) bytes: Vec<u8>,
    /// Bytes of group memory given out, from where the kernel's own end.
    group_end: u64,
}

impl Filling {
    pub(super) fn new(size: usize, group_bytes: u32) -> Self {
        Self {
            bytes: vec![0; size],
            group_end: group_bytes.into(),
        }
    }

    /// Bytes of group memory up to the end of what was given out.
    pub(super) fn group_end(&self) -> u64 {
        self.group_end
    }

    /// Stores as much of `value` as the argument has.
    pub(super) fn put(&mut self, argument: &ArgumentMetadata, value: &[u8]) {
        // CAST: 32 bits into 64, twice. Metadata was checked: the range lies inside.
        let (from, size) = (argument.offset as usize, argument.size as usize);
        let Some(place) = self.bytes.get_mut(from..).and_then(|b| b.get_mut(..size)) else {
            return;
        };
        for (to, from) in place.iter_mut().zip(value) {
            *to = *from;
        }
    }

    /// Stores the value of an argument that the source names, the one with this number.
    pub(super) fn put_explicit(
        &mut self,
        index: usize,
        argument: &ArgumentMetadata,
        value: &Value,
    ) -> Result<()> {
        let wrong = |what: String| CodeError::Argument { index, what };
        let kind = &argument.kind;
        match (value, kind) {
            (Value::Local(bytes), ArgumentKind::DynamicShared) => {
                let align = u64::from(argument.pointee_align.max(1));
                let start = self
                    .group_end
                    .checked_next_multiple_of(align)
                    .filter(|start| u32::try_from(*start).is_ok())
                    .ok_or_else(|| wrong(format!("no group memory on {align} bytes")))?;
                self.group_end = start + u64::from(*bytes);
                self.put(argument, &start.to_le_bytes());
            }
            (Value::Local(_), _) | (_, ArgumentKind::DynamicShared) => {
                return Err(wrong(format!("{} takes {}", kind.text(), wanted(kind))));
            }
            (Value::Address(address), _) if argument.size == 8 => {
                self.put(argument, &address.to_le_bytes());
            }
            (Value::Address(_), _) => {
                return Err(wrong(format!("an address for {} bytes", argument.size)));
            }
            (Value::Bytes(bytes), _) if bytes.len() as u64 == u64::from(argument.size) => {
                self.put(argument, bytes);
            }
            (Value::Bytes(bytes), _) => {
                let (given, size) = (bytes.len(), argument.size);
                return Err(wrong(format!("{given} bytes where it has {size}")));
            }
        }
        Ok(())
    }
}

fn wanted(kind: &ArgumentKind) -> &'static str {
    match kind {
        ArgumentKind::DynamicShared => "a size of group memory",
        _ => "no size of group memory",
    }
}
