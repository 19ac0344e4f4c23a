// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Functions that tasks name.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use super::ring::Task;
use crate::error::Error;
use crate::error::Result;

/// What a function gets. A kernel may have chosen any of it, but for the number of bytes, which is one that the function
/// takes.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The arguments.
    pub arguments: &'a [u8],
    /// The value of the function that this one follows; 0 for the first.
    pub input: u64,
    /// What the producer calls itself.
    pub source: u32,
    /// The GPU that the task came from, as the list of GPUs has it; behind the last, the program itself.
    pub area: usize,
    /// Who runs it.
    pub worker: usize,
}

impl Call<'_> {
    /// A word of the arguments; `None` behind their end.
    pub fn word(&self, index: usize) -> Option<u64> {
        let bytes = self.arguments.get(index.checked_mul(8)?..)?.get(..8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// How a function ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With a value: the future's, or the input of the function that follows.
    Done(u64),
    /// It failed, for a reason of its own, which [`super::failure::OWN`] is added to. What would follow does not run.
    Failed(u64),
    /// Another task takes its place, and ends the future.
    Then(Task),
}

type Run = dyn Fn(&Call<'_>) -> Outcome + Send + Sync;

/// A function.
pub(super) struct Function {
    name: String,
    bytes: RangeInclusive<usize>,
    pub(super) run: Box<Run>,
}

impl Function {
    pub(super) fn takes(&self, bytes: usize) -> bool {
        self.bytes.contains(&bytes)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?} bytes)", self.name, self.bytes)
    }
}

/// Functions by their numbers.
#[derive(Debug, Default)]
pub struct Functions(BTreeMap<u32, Function>);

impl Functions {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function, which takes so many bytes of arguments.
    ///
    /// It runs on any worker, several at a time. Where it panics, its task fails ([`super::failure::PANIC`]) and the worker
    /// goes on.
    ///
    /// # Errors
    /// [`Error::Argument`] for number 0, which says that no function follows, and for one that is there already.
    pub fn add(
        &mut self,
        number: u32,
        name: &str,
        bytes: RangeInclusive<usize>,
        run: impl Fn(&Call<'_>) -> Outcome + Send + Sync + 'static,
    ) -> Result<()> {
        if number == 0 || self.0.contains_key(&number) {
            return Err(Error::Argument(
                "A function's number is not 0, and nobody else's",
            ));
        }
        let function = Function {
            name: name.to_owned(),
            bytes,
            run: Box::new(run),
        };
        self.0.insert(number, function);
        Ok(())
    }

    pub(super) fn get(&self, number: u32) -> Option<&Function> {
        self.0.get(&number)
    }
}
