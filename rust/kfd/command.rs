// SPDX-License-Identifier: GPL-2.0

//! How a command word becomes a call: numbers, sizes, directions.
//!
//! Of the caller's word only number and size count; the direction is the kernel's. The size may differ
//! from the kernel's in both directions: a shorter argument is completed with zeros, a longer one is
//! carried along, and exactly as many bytes go back as came. That is how old and new user space
//! share one interface. The argument goes back after a failure too, because WAIT_EVENTS and
//! MAP_MEMORY_TO_GPU report progress in it.

use kernel::prelude::*;

/// Which way the argument travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// No argument.
    None,
    /// To the kernel.
    In,
    /// From the kernel.
    Out,
    /// Both.
    InOut,
}

impl Direction {
    /// Whether the argument is read from the caller.
    pub(crate) fn copies_in(self) -> bool {
        matches!(self, Self::In | Self::InOut)
    }

    /// Whether the argument is written back.
    pub(crate) fn copies_out(self) -> bool {
        matches!(self, Self::Out | Self::InOut)
    }
}

/// What the kernel knows of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Name without prefix.
    pub(crate) name: &'static str,
    /// Kernel's size of the argument, bytes.
    pub(crate) size: usize,
    /// Kernel's direction.
    pub(crate) direction: Direction,
}

/// First number in use.
pub(crate) const FIRST: u32 = 0x01;
/// Last number in use.
pub(crate) const LAST: u32 = 0x28;

/// The number in a command word.
pub(crate) const fn number(word: u32) -> u32 {
    word & 0xff
}

/// The size of the argument in a command word, bytes (14 bits).
pub(crate) const fn size(word: u32) -> usize {
    // CAST: 14 bits fit.
    ((word >> 16) & 0x3fff) as usize
}

/// Whether upstream answers commands of this number.
///
/// # Errors
///
/// `ENOTTY` if not.
pub(crate) fn check_number(number: u32) -> Result {
    if (FIRST..=LAST).contains(&number) {
        Ok(())
    } else {
        Err(ENOTTY)
    }
}

/// The argument of one call: as large as the larger of the two sides wants, zero where the caller gave
/// nothing.
pub(crate) struct Argument {
    bytes: KVec<u8>,
    user_size: usize,
}

impl Argument {
    /// Makes room for a call of `word`, everything zero.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(shape: &Shape, word: u32) -> Result<Self> {
        let user_size = size(word);
        Ok(Self {
            bytes: KVec::from_elem(0, user_size.max(shape.size), GFP_KERNEL_ACCOUNT)?,
            user_size,
        })
    }

    /// The part that the caller sees.
    pub(crate) fn user(&self) -> &[u8] {
        self.bytes.get(..self.user_size).unwrap_or_default()
    }

    /// The part that the caller sees, to fill.
    pub(crate) fn user_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.user_size).unwrap_or_default()
    }

    /// The caller's size, bytes.
    pub(crate) fn user_size(&self) -> usize {
        self.user_size
    }

    /// Reads the argument as a `T`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `T` is larger than the argument, which the table of commands excludes.
    pub(crate) fn read<T: kernel::transmute::FromBytes>(&self) -> Result<T> {
        let (value, _) = T::from_bytes_copy_prefix(&self.bytes).ok_or(EINVAL)?;
        Ok(value)
    }

    /// Stores `value` as the argument.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `T` is larger than the argument, which the table of commands excludes.
    pub(crate) fn write<T: kernel::transmute::AsBytes>(&mut self, value: &T) -> Result {
        let source = value.as_bytes();
        self.bytes
            .get_mut(..source.len())
            .ok_or(EINVAL)?
            .copy_from_slice(source);
        Ok(())
    }
}
