// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The VMM's side of the vfio-user socket, message by message.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// Longer than any host takes for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

pub const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const SET_IRQS: u16 = 8;
const REGION_READ: u16 = 9;
const REGION_WRITE: u16 = 10;
const RESET: u16 = 13;

/// In the flags of a header: a reply, and one that refuses.
const REPLY: u32 = 1;
const ERROR: u32 = 1 << 5;

/// The server refuses a message; the errno that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(pub u32);

pub struct Vmm {
    pub stream: UnixStream,
    next: u16,
}

/// A message: header (id, command, size, flags, errno) and what follows.
pub fn message(id: u16, command: u16, flags: u32, payload: &[u8]) -> Vec<u8> {
    let size = 16 + payload.len() as u32;
    let mut all = Vec::new();
    all.extend(id.to_le_bytes());
    all.extend(command.to_le_bytes());
    for word in [size, flags, 0] {
        all.extend(word.to_le_bytes());
    }
    all.extend(payload);
    all
}

/// Fields of a message, by size.
pub enum Field {
    W(u32),
    Q(u64),
}

pub fn fields(all: &[Field]) -> Vec<u8> {
    let bytes = all.iter().flat_map(|field| match field {
        Field::W(v) => v.to_le_bytes().to_vec(),
        Field::Q(v) => v.to_le_bytes().to_vec(),
    });
    bytes.collect()
}

impl Vmm {
    /// Waits until the server listens, and says nothing yet.
    pub fn connect(socket: &Path) -> Self {
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(e) => assert!(begun.elapsed() < PATIENCE, "{e}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, next: 0 }
    }

    /// As [`Vmm::connect`], and agrees on the version.
    pub fn attach(socket: &Path) -> Self {
        let mut vmm = Self::connect(socket);
        let mut version = [0, 0, 1, 0].to_vec();
        version.extend(b"{\"capabilities\":{}}\0");
        vmm.ask(VERSION, &version, &[]).unwrap();
        vmm
    }

    /// Sends a message and reads its reply.
    pub fn ask(&mut self, command: u16, payload: &[u8], fds: &[RawFd]) -> Result<Vec<u8>, Refused> {
        let id = self.next;
        self.next = id.wrapping_add(1);
        let all = message(id, command, 0, payload);
        let sent = self.stream.send_with_fds(&[all.as_slice()], fds).unwrap();
        self.stream.write_all(&all[sent..]).unwrap();
        let mut header = [0; 16];
        self.stream.read_exact(&mut header).unwrap();
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let mut data = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut data).unwrap();
        assert_eq!(word(0), u32::from(id) | (u32::from(command) << 16));
        match word(8) {
            REPLY => Ok(data),
            flags => {
                assert_eq!(flags, REPLY | ERROR);
                Err(Refused(word(12)))
            }
        }
    }

    /// As [`Vmm::ask`], of what has nothing to say.
    fn confirm(&mut self, command: u16, payload: &[u8], fds: &[RawFd]) -> Result<(), Refused> {
        let said = self.ask(command, payload, fds)?;
        assert!(said.is_empty(), "{said:?}");
        Ok(())
    }

    pub fn region_read(&mut self, region: u32, at: u64, data: &mut [u8]) -> Result<(), Refused> {
        let count = data.len() as u32;
        let request = fields(&[Field::Q(at), Field::W(region), Field::W(count)]);
        let reply = self.ask(REGION_READ, &request, &[])?;
        let (echo, read) = reply.split_at(16);
        assert_eq!(echo, request);
        data.copy_from_slice(read);
        Ok(())
    }

    pub fn region_write(&mut self, region: u32, at: u64, data: &[u8]) -> Result<(), Refused> {
        let count = data.len() as u32;
        let mut request = fields(&[Field::Q(at), Field::W(region), Field::W(count)]);
        let echo = request.clone();
        request.extend(data);
        assert_eq!(self.ask(REGION_WRITE, &request, &[])?, echo);
        Ok(())
    }

    /// Flags: 1 to be read, 2 to be written.
    pub fn dma_map(
        &mut self,
        flags: u32,
        offset: u64,
        (at, size): (u64, u64),
        file: Option<RawFd>,
    ) -> Result<(), Refused> {
        let request = fields(&[
            Field::W(32),
            Field::W(flags),
            Field::Q(offset),
            Field::Q(at),
            Field::Q(size),
        ]);
        let fds: Vec<RawFd> = file.into_iter().collect();
        self.confirm(DMA_MAP, &request, &fds)
    }

    pub fn dma_unmap(&mut self, all: bool, at: u64, size: u64) -> Result<(), Refused> {
        let flags = if all { 1 << 2 } else { 0 };
        let request = fields(&[Field::W(24), Field::W(flags), Field::Q(at), Field::Q(size)]);
        assert_eq!(self.ask(DMA_UNMAP, &request, &[])?, request);
        Ok(())
    }

    pub fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        count: u32,
        event: Option<RawFd>,
    ) -> Result<(), Refused> {
        let request = [20, flags, index, 0, count].map(Field::W);
        let fds: Vec<RawFd> = event.into_iter().collect();
        self.confirm(SET_IRQS, &fields(&request), &fds)
    }

    pub fn reset(&mut self) -> Result<(), Refused> {
        self.confirm(RESET, &[], &[])
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        // The server may have given up on the session.
        let _ = self.stream.write_all(bytes);
    }

    /// Sends no more, and reads what the server has still to say; false if it goes on for ever.
    pub fn hang_up(mut self) -> bool {
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut rest = [0; 65536];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) => return e.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}
