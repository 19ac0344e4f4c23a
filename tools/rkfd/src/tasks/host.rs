// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Calls of the host that kernels need most: text output, files, memory.
//!
//! What a kernel names by an address, to be read or written here, has to lie in memory that the program has offered
//! ([`Host::offer`], [`Host::offer_program`]); a file is one that the program has opened ([`Host::offer_file`]). So a kernel
//! that errs, or means harm, reaches nothing else of the process.
//!
//! | Function | Arguments, in words | Value |
//! | --- | --- | --- |
//! | [`PRINT`] | address of a text with conversions of `printf`, then what they take | bytes printed |
//! | [`READ`] | file, offset, address, bytes | bytes read, less than asked for at the file's end |
//! | [`ALLOCATE`] | bytes, alignment (a power of two, or 0) | address |
//! | [`RELEASE`] | address | bytes that are free again |

mod format;
mod heap;

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::RwLock;

use self::heap::Heap;
use super::function::Call;
use super::function::Functions;
use super::function::Outcome;
use crate::code::program::Program;
use crate::device::Device;
use crate::error::Error;
use crate::error::Result;
use crate::memory::Buffer;
use crate::memory::Kind;

/// Number of the function that prints.
pub const PRINT: u32 = 0xff00;
/// Number of the function that reads files.
pub const READ: u32 = 0xff01;
/// Number of the function that allocates.
pub const ALLOCATE: u32 = 0xff02;
/// Number of the function that gives memory back.
pub const RELEASE: u32 = 0xff03;

/// Reasons for failure, as [`Outcome::Failed`] has them.
pub mod reason {
    /// Memory that the program did not offer, or not in this way.
    pub const ADDRESS: u64 = 0;
    /// No such file.
    pub const FILE: u64 = 1;
    /// The system's error is in the upper half.
    pub const IO: u64 = 2;
    /// No room in the heap, or not an allocation of it.
    pub const MEMORY: u64 = 3;
    /// A text that is none, or with conversions that there are not.
    pub const FORMAT: u64 = 4;
}

/// Longest text, and most bytes of what is printed for one.
const MOST_TEXT: usize = 4096;
/// Bytes that are read from a file at a time.
const PIECE: usize = 1 << 16;

/// Memory that kernels may name.
enum Region {
    Memory {
        buffer: Arc<Buffer>,
        device: Arc<Device>,
    },
    Program(Arc<Program>),
}

impl Region {
    fn buffer(&self) -> &Buffer {
        match self {
            Self::Memory { buffer, .. } => buffer,
            Self::Program(program) => program.image(),
        }
    }

    /// Where `len` bytes at `address` begin in it, if all of them are in it.
    fn offset(&self, address: u64, len: usize) -> Option<usize> {
        let buffer = self.buffer();
        let offset = usize::try_from(address.checked_sub(buffer.address())?).ok()?;
        (offset.checked_add(len)? <= buffer.size()).then_some(offset)
    }
}

/// Where the heap is.
struct Pool {
    heap: Heap,
    _buffer: Arc<Buffer>,
}

type Print = Box<dyn FnMut(&str) + Send>;

/// The service. It keeps what it was offered as long as it lives.
pub struct Host {
    regions: RwLock<Vec<Region>>,
    files: RwLock<Vec<File>>,
    pool: Mutex<Option<Pool>>,
    print: Mutex<Print>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The outcome of a call.
type Answer = std::result::Result<u64, u64>;

impl Host {
    /// A service that prints by `print`.
    pub fn new(print: impl FnMut(&str) + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            regions: RwLock::default(),
            files: RwLock::default(),
            pool: Mutex::new(None),
            print: Mutex::new(Box::new(print)),
        })
    }

    /// Adds its functions.
    ///
    /// # Errors
    /// [`Error::Argument`] where their numbers are taken.
    pub fn register(self: &Arc<Self>, functions: &mut Functions) -> Result<()> {
        type Answering = fn(&Host, &Call<'_>) -> Answer;
        let all: [(u32, &str, _, Answering); 4] = [
            (PRINT, "print", 8..=4096, Self::print),
            (READ, "read", 32..=32, Self::read),
            (ALLOCATE, "allocate", 16..=16, Self::allocate),
            (RELEASE, "release", 8..=8, Self::release),
        ];
        for (number, name, bytes, run) in all {
            let host = self.clone();
            functions.add(number, name, bytes, move |call| match run(&host, call) {
                Ok(value) => Outcome::Done(value),
                Err(reason) => Outcome::Failed(reason),
            })?;
        }
        Ok(())
    }

    /// Lets kernels name a buffer of the CPU's and a GPU's: files are read into it, and texts are found there.
    ///
    /// # Errors
    /// [`Error::Argument`] where the CPU does not reach it.
    pub fn offer(&self, device: &Arc<Device>, buffer: Arc<Buffer>) -> Result<()> {
        if !matches!(buffer.kind(), Kind::Vram | Kind::Gtt | Kind::Userptr) {
            return Err(Error::Argument("Memory that the CPU does not reach"));
        }
        self.add(Region::Memory {
            buffer,
            device: device.clone(),
        });
        Ok(())
    }

    /// Lets kernels name texts that are part of their program.
    pub fn offer_program(&self, program: Arc<Program>) {
        self.add(Region::Program(program));
    }

    fn add(&self, region: Region) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.push(region);
    }

    /// Lets kernels read a file, and returns its number.
    pub fn offer_file(&self, file: File) -> u64 {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        files.push(file);
        files.len() as u64 - 1 // CAST: a count.
    }

    /// Gives kernels a heap. It takes the place of the one before, whose allocations are forgotten.
    ///
    /// # Errors
    /// As [`Host::offer`], for the heap is offered, too.
    pub fn set_heap(&self, device: &Arc<Device>, buffer: Arc<Buffer>) -> Result<()> {
        self.offer(device, buffer.clone())?;
        *lock(&self.pool) = Some(Pool {
            heap: Heap::new(buffer.address(), buffer.size() as u64), // CAST: a size in memory.
            _buffer: buffer,
        });
        Ok(())
    }

    /// Bytes of the heap that kernels have.
    pub fn allocated(&self) -> u64 {
        lock(&self.pool).as_ref().map_or(0, |pool| pool.heap.used())
    }

    /// Works on the memory that has all of these bytes.
    fn within<T>(
        &self,
        address: u64,
        len: usize,
        work: impl FnOnce(&Region, usize) -> std::result::Result<T, u64>,
    ) -> std::result::Result<T, u64> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let found = regions
            .iter()
            .find_map(|region| Some((region, region.offset(address, len)?)));
        let (region, offset) = found.ok_or(reason::ADDRESS)?;
        work(region, offset)
    }

    /// The text at an address, up to its end.
    fn text(&self, address: u64) -> std::result::Result<Vec<u8>, u64> {
        self.within(address, 1, |region, offset| {
            let buffer = region.buffer();
            let mut bytes = vec![0; MOST_TEXT.min(buffer.size() - offset)];
            buffer
                .read_bytes(offset, &mut bytes)
                .map_err(|_| reason::ADDRESS)?;
            let end = bytes.iter().position(|byte| *byte == 0);
            bytes.truncate(end.ok_or(reason::FORMAT)?);
            Ok(bytes)
        })
    }

    fn print(&self, call: &Call<'_>) -> Answer {
        let format = self.text(call.word(0).ok_or(reason::FORMAT)?)?;
        let arguments: Vec<u64> = (1..).map_while(|n| call.word(n)).collect();
        let text = format::format(&format, &arguments, |address| self.text(address))?;
        if text.len() > MOST_TEXT {
            return Err(reason::FORMAT);
        }
        lock(&self.print)(&text);
        Ok(text.len() as u64) // CAST: bounded above.
    }

    fn read(&self, call: &Call<'_>) -> Answer {
        let [file, offset, to, bytes] = [0, 1, 2, 3].map(|n| call.word(n).unwrap_or(u64::MAX));
        let len = usize::try_from(bytes).map_err(|_| reason::ADDRESS)?;
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let file = usize::try_from(file).ok().and_then(|n| files.get(n));
        let file = file.ok_or(reason::FILE)?;
        self.within(to, len, |region, at| {
            let Region::Memory { buffer, device } = region else {
                // Programs are read only.
                return Err(reason::ADDRESS);
            };
            let mut piece = vec![0; PIECE.min(len)];
            let mut done = 0;
            while done < len {
                let want = piece.len().min(len - done);
                let from = offset.checked_add(done as u64).ok_or(reason::IO)?; // CAST: a size in memory.
                let piece = piece.get_mut(..want).ok_or(reason::IO)?;
                let got = match file.read_at(piece, from) {
                    Ok(0) => break,
                    Ok(got) => got,
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(e) => {
                        let number = e.raw_os_error().and_then(|n| u64::try_from(n).ok());
                        return Err(reason::IO | (number.unwrap_or(0) << 32));
                    }
                };
                buffer
                    .write_bytes(at + done, piece.get(..got).ok_or(reason::IO)?)
                    .map_err(|_| reason::ADDRESS)?;
                done += got;
            }
            if buffer.kind() == Kind::Vram {
                device.flush_host_data_path();
            }
            Ok(done as u64) // CAST: a size in memory.
        })
    }

    fn allocate(&self, call: &Call<'_>) -> Answer {
        let [bytes, align] = [0, 1].map(|n| call.word(n).unwrap_or(0));
        let mut pool = lock(&self.pool);
        let heap = &mut pool.as_mut().ok_or(reason::MEMORY)?.heap;
        heap.allocate(bytes, align).ok_or(reason::MEMORY)
    }

    fn release(&self, call: &Call<'_>) -> Answer {
        let address = call.word(0).ok_or(reason::MEMORY)?;
        let mut pool = lock(&self.pool);
        let heap = &mut pool.as_mut().ok_or(reason::MEMORY)?.heap;
        heap.release(address).ok_or(reason::MEMORY)
    }
}
