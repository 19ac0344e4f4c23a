// SPDX-License-Identifier: GPL-2.0

//! Interrupt ring: vectors and pointers.
//!
//! The interrupt handler appends 32-byte vectors to a ring in system memory, writes its write
//! pointer back and raises the MSI. Everything in a vector comes from the device and is decoded
//! without trust. Source: `amdgpu_ih.c`, `soc15_int.h`, `soc15_ih_clientid.h`,
//! `irqsrcs_gfx_9_0.h`, `irqsrcs_sdma0_4_0.h`, `irqsrcs_vmc_1_0.h`, `kfd_int_process_v9.c`.

use core::fmt;

use super::num;
use super::regs::osssys::RbWptr;

/// Bytes of a vector.
pub(crate) const VECTOR_BYTES: u32 = 32;
/// Dwords of a vector.
pub(crate) const VECTOR_DWORDS: usize = 8;
/// Bytes of ring 0; RB_WPTR can express no more.
pub(crate) const RING0_BYTES: u32 = 256 * 1024;
/// Bytes of rings 1 and 2.
pub(crate) const RING12_BYTES: u32 = 4096;

/// Block that raised an interrupt (`soc15_ih_clientid.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// The interrupt handler itself: entries on rings 1 and 2.
    Ih,
    /// SDMA engine.
    Sdma(u8),
    /// Shader engine (SQ).
    ShaderEngine(u8),
    /// MMHUB faults; `true` is the second instance.
    Vmc(bool),
    /// Command processor.
    GrbmCp,
    /// GFXHUB faults.
    Utcl2,
    /// Thermal sensor.
    Thm,
    /// Security processor.
    Mp0,
    /// Power controller.
    Mp1,
    /// Anything else.
    Other(u8),
}

impl Client {
    /// Client with the given id.
    pub(crate) const fn from_id(id: u8) -> Self {
        match id {
            0x00 => Self::Ih,
            0x08 => Self::Sdma(0),
            0x09 => Self::Sdma(1),
            0x01 => Self::Sdma(2),
            0x04 => Self::Sdma(3),
            0x05 => Self::Sdma(4),
            0x11 => Self::Sdma(5),
            0x13 => Self::Sdma(6),
            0x18 => Self::Sdma(7),
            0x0A..=0x0D => Self::ShaderEngine(id - 0x0A),
            0x12 => Self::Vmc(false),
            0x06 => Self::Vmc(true),
            0x14 => Self::GrbmCp,
            0x1B => Self::Utcl2,
            0x0F => Self::Thm,
            0x1E => Self::Mp0,
            0x1F => Self::Mp1,
            other => Self::Other(other),
        }
    }

    /// Id of the client; the inverse of [`Client::from_id`].
    pub(crate) const fn id(self) -> u8 {
        match self {
            Self::Ih => 0x00,
            Self::Sdma(engine) => match engine {
                0 => 0x08,
                1 => 0x09,
                2 => 0x01,
                3 => 0x04,
                4 => 0x05,
                5 => 0x11,
                6 => 0x13,
                _ => 0x18,
            },
            Self::ShaderEngine(se) => 0x0A + (se & 3),
            Self::Vmc(false) => 0x12,
            Self::Vmc(true) => 0x06,
            Self::GrbmCp => 0x14,
            Self::Utcl2 => 0x1B,
            Self::Thm => 0x0F,
            Self::Mp0 => 0x1E,
            Self::Mp1 => 0x1F,
            Self::Other(id) => id,
        }
    }
}

/// Source numbers.
pub(crate) mod source {
    /// GRBM_CP: interrupt packet on a ring, indirect buffer 1, indirect buffer 2 (KIQ fence).
    pub(crate) const CP_INTERRUPT: core::ops::RangeInclusive<u8> = 176..=178;
    /// GRBM_CP: KIQ fence, raised through CPC_INT_STATUS.
    pub(crate) const CP_GENERIC2: u8 = 178;
    /// GRBM_CP: end of pipe, AQL completion.
    pub(crate) const CP_EOP: u8 = 181;
    /// GRBM_CP: bad opcode or packet.
    pub(crate) const CP_BAD_OPCODE: u8 = 183;
    /// GRBM_CP: privileged register.
    pub(crate) const CP_PRIV_REG: u8 = 184;
    /// GRBM_CP: privileged instruction.
    pub(crate) const CP_PRIV_INST: u8 = 185;
    /// GRBM_CP: QUERY_STATUS with an interrupt.
    pub(crate) const CP_QUERY_STATUS: u8 = 199;
    /// GRBM_CP: doorbell without a queue.
    pub(crate) const CP_UNATTACHED_DOORBELL: u8 = 200;
    /// Shader engines and GRBM_CP: wave message or error.
    pub(crate) const SQ: u8 = 239;
    /// SDMA: TRAP packet.
    pub(crate) const SDMA_TRAP: u8 = 224;
    /// SDMA: uncorrectable error.
    pub(crate) const SDMA_ECC: u8 = 220;
    /// SDMA: page fault.
    pub(crate) const SDMA_PAGE_FAULT: u8 = 221;
    /// SDMA: address in the hole.
    pub(crate) const SDMA_VM_HOLE: u8 = 242;
    /// SDMA: context empty.
    pub(crate) const SDMA_CTXEMPTY: u8 = 243;
    /// SDMA: doorbell that does not match.
    pub(crate) const SDMA_DOORBELL_INVALID: u8 = 244;
    /// SDMA: poll timed out.
    pub(crate) const SDMA_POLL_TIMEOUT: u8 = 246;
    /// SDMA: register write from a user queue.
    pub(crate) const SDMA_SRBM_WRITE: u8 = 247;
    /// Hubs: translation fault.
    pub(crate) const VM_FAULT: u8 = 0;
    /// Hubs: poisoned data.
    pub(crate) const VM_POISON: u8 = 1;
}

/// One vector as read from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vector {
    /// Block.
    pub(crate) client: Client,
    /// Source of the block.
    pub(crate) source: u8,
    /// Ring or queue of the block.
    pub(crate) ring_id: u8,
    /// VMID, 0 to 15.
    pub(crate) vmid: u8,
    /// The VMID is one of MMHUB.
    pub(crate) mmhub: bool,
    /// 48-bit time stamp; never decreases within a ring.
    pub(crate) timestamp: u64,
    /// PASID; 0 for the kernel.
    pub(crate) pasid: u16,
    /// Die.
    pub(crate) node_id: u8,
    /// Context ids 0 to 3.
    pub(crate) data: [u32; 4],
}

/// The lowest byte of `word >> shift`.
const fn byte(word: u32, shift: u32) -> u8 {
    // CAST: The mask leaves 8 bits.
    ((word >> shift) & 0xff) as u8
}

impl Vector {
    /// Decodes the eight dwords of a vector.
    pub(crate) const fn decode(dw: &[u32; VECTOR_DWORDS]) -> Self {
        Self {
            client: Client::from_id(byte(dw[0], 0)),
            source: byte(dw[0], 8),
            ring_id: byte(dw[0], 16),
            vmid: byte(dw[0], 24) & 0xf,
            mmhub: dw[0] >> 31 != 0,
            timestamp: num::join(dw[1], dw[2] & 0xffff),
            // CAST: The mask leaves 16 bits.
            pasid: (dw[3] & 0xffff) as u16,
            node_id: byte(dw[3], 16),
            data: [dw[4], dw[5], dw[6], dw[7]],
        }
    }

    /// What happened.
    pub(crate) fn event(&self) -> Event {
        match (self.client, self.source) {
            (Client::Ih, 0) => Event::OtherRing(self.ring_id),
            (Client::GrbmCp, source::CP_EOP) => Event::EndOfPipe {
                queue: CpQueue::from_ring_id(self.ring_id),
                context: self.data[0],
            },
            (Client::GrbmCp, source::CP_BAD_OPCODE) => {
                let (doorbell_id, code) = bad_packet(self.data[0]);
                Event::BadPacket { doorbell_id, code }
            }
            (Client::GrbmCp, source::CP_PRIV_REG) => {
                Event::PrivilegedRegister(CpQueue::from_ring_id(self.ring_id))
            }
            (Client::GrbmCp, source::CP_PRIV_INST) => {
                Event::PrivilegedInstruction(CpQueue::from_ring_id(self.ring_id))
            }
            (Client::GrbmCp, source::CP_GENERIC2) => Event::KiqFence,
            (Client::GrbmCp, source::CP_QUERY_STATUS) => Event::QueryStatus(self.data[0]),
            (Client::GrbmCp, source::CP_UNATTACHED_DOORBELL) => Event::UnattachedDoorbell,
            (Client::GrbmCp | Client::ShaderEngine(_), source::SQ) => {
                Event::Sq(SqInterrupt::decode(self.data[0], self.data[1]))
            }
            (Client::Sdma(engine), source::SDMA_TRAP) => Event::SdmaTrap {
                engine,
                context: self.data[0] & 0x0fff_ffff,
            },
            (Client::Sdma(engine), source::SDMA_ECC) => Event::SdmaPoison(engine),
            (Client::Sdma(engine), source) => Event::SdmaOther { engine, source },
            (Client::Utcl2, source::VM_FAULT) => {
                Event::Fault(Fault::decode(Hub::Gfx, self.ring_id, &self.data))
            }
            (Client::Vmc(_), source::VM_FAULT) => {
                Event::Fault(Fault::decode(Hub::Mm, self.ring_id, &self.data))
            }
            (Client::Utcl2 | Client::Vmc(_), source::VM_POISON) => Event::VmPoison,
            _ => Event::Unknown,
        }
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} src {} ring {:#x} vmid {}{} pasid {} t {} {:?}",
            self.client,
            self.source,
            self.ring_id,
            self.vmid,
            if self.mmhub { " (mm)" } else { "" },
            self.pasid,
            self.timestamp,
            self.event()
        )
    }
}

/// Queue that raised a CP interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpQueue {
    /// Micro engine, 1 or 2 where meaningful.
    pub(crate) me: u8,
    /// Pipe.
    pub(crate) pipe: u8,
    /// Queue.
    pub(crate) queue: u8,
}

impl CpQueue {
    /// Decodes ring_id: pipe [1:0], me [3:2], queue [6:4].
    pub(crate) const fn from_ring_id(ring_id: u8) -> Self {
        Self {
            me: (ring_id >> 2) & 3,
            pipe: ring_id & 3,
            queue: (ring_id >> 4) & 7,
        }
    }
}

/// Why the CP refused a packet (KFD exception numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketException {
    /// Invalid dispatch dimensions.
    DispatchDimensions,
    /// Invalid group segment size.
    GroupSegmentSize,
    /// Invalid code.
    DispatchCode,
    /// Unsupported packet.
    UnsupportedPacket,
    /// Invalid workgroup size.
    WorkgroupSize,
    /// Invalid registers.
    Registers,
    /// Unsupported vendor packet.
    VendorPacket,
    /// Any other code, including 0 for a plain bad opcode.
    Other(u32),
}

/// Doorbell id in the process slice and reason, from context id 0 of the report of a bad packet.
pub(crate) const fn bad_packet(context: u32) -> (u32, PacketException) {
    (
        context & 0x3ff,
        PacketException::from_code((context >> 10) & 0xffff),
    )
}

impl PacketException {
    const fn from_code(code: u32) -> Self {
        match code {
            16 => Self::DispatchDimensions,
            17 => Self::GroupSegmentSize,
            18 => Self::DispatchCode,
            20 => Self::UnsupportedPacket,
            21 => Self::WorkgroupSize,
            22 => Self::Registers,
            23 => Self::VendorPacket,
            other => Self::Other(other),
        }
    }

    /// KFD's exception number (`kfd_ioctl.h`).
    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::DispatchDimensions => 16,
            Self::GroupSegmentSize => 17,
            Self::DispatchCode => 18,
            Self::UnsupportedPacket => 20,
            Self::WorkgroupSize => 21,
            Self::Registers => 22,
            Self::VendorPacket => 23,
            Self::Other(code) => code,
        }
    }
}

/// Hub that reports a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hub {
    /// GFXHUB: shaders, CP.
    Gfx,
    /// MMHUB: SDMA.
    Mm,
}

/// A translation fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Hub.
    pub(crate) hub: Hub,
    /// First byte of the faulting page.
    pub(crate) address: u64,
    /// Instruction fetch.
    pub(crate) execute: bool,
    /// Store or atomic.
    pub(crate) write: bool,
    /// Load.
    pub(crate) read: bool,
    /// The access is being replayed; see [`Fault::cam_index`].
    pub(crate) retry: bool,
    /// The page had no valid entry (ring_id bit 3, the valid-protection fault of the hub); clear, an
    /// entry lacked permission.
    pub(crate) protection: bool,
    /// Entry of the retry CAM, released through its doorbell after handling.
    pub(crate) cam_index: u16,
}

impl Fault {
    /// Decodes the fault words: page number [43:12] in the first, the rest and flags in the second.
    pub(crate) const fn decode(hub: Hub, ring_id: u8, data: &[u32; 4]) -> Self {
        Self {
            hub,
            address: num::join(data[0], data[1] & 0xf) << 12,
            execute: data[1] & 0x10 != 0,
            write: data[1] & 0x20 != 0,
            read: data[1] & 0x40 != 0,
            retry: data[1] & 0x80 != 0,
            protection: ring_id & (1 << 3) != 0,
            // CAST: The mask leaves 10 bits.
            cam_index: (data[2] & 0x3ff) as u16,
        }
    }
}

/// A message or error of a wave (source 239).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqInterrupt {
    /// Generated by hardware units; the bits are thread-trace and timestamp conditions.
    Auto(u32),
    /// `s_sendmsg`: 24 bits of M0.
    Message {
        /// The message.
        data: u32,
        /// Sent by the trap handler.
        privileged: bool,
    },
    /// A wave error.
    Error(WaveError),
    /// Reserved encoding.
    Reserved,
}

/// Kind of a wave error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaveError {
    /// Uncorrectable error.
    EdcFue,
    /// Illegal instruction.
    IllegalInstruction,
    /// Memory violation.
    MemoryViolation,
    /// Correctable-error threshold.
    EdcFed,
    /// Not known.
    Other(u32),
}

impl SqInterrupt {
    const fn decode(word0: u32, word1: u32) -> Self {
        let data = word0 & 0xfff | ((word0 >> 28) << 12) | ((word1 & 0xff) << 16);
        match (word0 >> 26) & 3 {
            0 => Self::Auto(data),
            1 => Self::Message {
                data,
                privileged: word0 & (1 << 13) != 0,
            },
            2 => Self::Error(match (data >> 20) & 0xf {
                0 => WaveError::EdcFue,
                1 => WaveError::IllegalInstruction,
                2 => WaveError::MemoryViolation,
                3 => WaveError::EdcFed,
                other => WaveError::Other(other),
            }),
            _ => Self::Reserved,
        }
    }
}

/// Meaning of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Ring 1 or 2 has entries.
    OtherRing(u8),
    /// A packet of a compute queue finished.
    EndOfPipe {
        /// Queue.
        queue: CpQueue,
        /// Event id given by user space.
        context: u32,
    },
    /// A compute queue stopped at a bad packet.
    BadPacket {
        /// Id in the process slice.
        doorbell_id: u32,
        /// Reason.
        code: PacketException,
    },
    /// A user queue wrote a privileged register.
    PrivilegedRegister(CpQueue),
    /// A user queue used a privileged packet.
    PrivilegedInstruction(CpQueue),
    /// The KIQ's fence.
    KiqFence,
    /// QUERY_STATUS with its context id.
    QueryStatus(u32),
    /// A doorbell matched no queue.
    UnattachedDoorbell,
    /// Wave message or error.
    Sq(SqInterrupt),
    /// SDMA TRAP packet.
    SdmaTrap {
        /// Engine.
        engine: u8,
        /// Event id given by user space, 28 bits.
        context: u32,
    },
    /// Uncorrectable error in an SDMA engine.
    SdmaPoison(u8),
    /// Another SDMA source.
    SdmaOther {
        /// Engine.
        engine: u8,
        /// Source, see [`source`].
        source: u8,
    },
    /// Translation fault.
    Fault(Fault),
    /// Poisoned data consumed through a hub.
    VmPoison,
    /// Not known.
    Unknown,
}

/// Position arithmetic of one ring.
///
/// # Invariants
///
/// `bytes` is a power of two, at least one vector and at most [`RING0_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    bytes: u32,
}

/// What the write pointer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Vectors from the read pointer up to this position are new.
    UpTo(u32),
    /// Vectors were overwritten: go on at `restart`, up to `end`, and clear the overflow flag.
    Overflow {
        /// New read pointer, the oldest vector that survives.
        restart: u32,
        /// Write pointer.
        end: u32,
    },
    /// The pointer is outside the ring or not at a vector; the device is broken or gone.
    Bad(u32),
}

impl Ring {
    /// A ring of `bytes` bytes, if hardware can have one of that size.
    pub(crate) const fn new(bytes: u32) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= VECTOR_BYTES && bytes <= RING0_BYTES {
            // INVARIANT: Checked in the line above.
            Some(Self { bytes })
        } else {
            None
        }
    }

    /// Length in bytes.
    pub(crate) const fn bytes(self) -> u32 {
        self.bytes
    }

    /// RB_CNTL.RB_SIZE: log2 of the dwords.
    pub(crate) const fn size_field(self) -> u32 {
        self.bytes.trailing_zeros() - 2
    }

    /// Interprets a write pointer read from memory or from RB_WPTR.
    pub(crate) const fn pending(self, wptr: u32) -> Pending {
        let word = RbWptr::from_raw(wptr);
        let end = word.bytes();
        if wptr == u32::MAX || end >= self.bytes || end % VECTOR_BYTES != 0 {
            Pending::Bad(wptr)
        } else if word.is_set(RbWptr::OVERFLOW) {
            Pending::Overflow {
                restart: self.next(end),
                end,
            }
        } else {
            Pending::UpTo(end)
        }
    }

    /// Position after the vector at `position`.
    pub(crate) const fn next(self, position: u32) -> u32 {
        (position.wrapping_add(VECTOR_BYTES)) & (self.bytes - 1)
    }

    /// Vectors between the read and the write position.
    pub(crate) const fn count(self, rptr: u32, end: u32) -> u32 {
        (end.wrapping_sub(rptr) & (self.bytes - 1)) / VECTOR_BYTES
    }

    /// Index of the first dword of the vector at `position`.
    pub(crate) const fn dword_index(self, position: u32) -> usize {
        num::index((position & (self.bytes - 1)) / 4)
    }
}

/// Whether time stamp `a` is after `b`, both of 48 bits that may wrap.
pub(crate) const fn timestamp_after(a: u64, b: u64) -> bool {
    let diff = a.wrapping_sub(b) & num::low_mask(48);
    diff != 0 && diff < 1 << 47
}
