// SPDX-License-Identifier: GPL-2.0

//! Which block an access came from: FAULT_STATUS.CID by hub and ASIC.
//!
//! A number may stand for different blocks when it reads and when it writes. Source: `gmc_v9_0.c`
//! (`gfxhub_client_ids`, `mmhub_client_ids_vega20`, `mmhub_client_ids_aldebaran`), as of GC 9.4.0 and 9.4.2.

/// A number of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    id: u32,
    /// Block that reads under it.
    read: Option<&'static str>,
    /// Block that writes under it.
    write: Option<&'static str>,
}

/// Reads and writes of one block.
const fn both(id: u32, name: &'static str) -> Client {
    split(id, name, name)
}

/// Reads of one block, writes of another.
const fn split(id: u32, read: &'static str, write: &'static str) -> Client {
    Client {
        id,
        read: Some(read),
        write: Some(write),
    }
}

const fn read(id: u32, name: &'static str) -> Client {
    Client {
        id,
        read: Some(name),
        write: None,
    }
}

const fn write(id: u32, name: &'static str) -> Client {
    Client {
        id,
        read: None,
        write: Some(name),
    }
}

/// The name of client `id` in `table`, for an access that writes or one that reads.
pub(super) fn name(table: &[Client], id: u32, writes: bool) -> Option<&'static str> {
    let client = table.iter().find(|client| client.id == id)?;
    match writes {
        true => client.write,
        false => client.read,
    }
}

/// GFXHUB of all ASICs.
pub(crate) static GFXHUB: [Client; 13] = [
    both(0, "CB"),
    both(1, "DB"),
    both(2, "IA"),
    both(3, "WD"),
    both(4, "CPF"),
    both(5, "CPC"),
    both(6, "CPG"),
    both(7, "RLC"),
    both(8, "TCP"),
    both(9, "SQC (inst)"),
    both(10, "SQC (data)"),
    both(11, "SQG"),
    both(12, "PA"),
];

/// MMHUB of gfx906.
pub(crate) static MMHUB_GFX906: [Client; 19] = [
    both(0, "XDMA"),
    both(1, "DCE"),
    split(2, "VCE0", "DCEDWB"),
    split(3, "VCE0U", "VCE0"),
    split(4, "UVD", "VCE0U"),
    split(5, "UVD1U", "UVD1"),
    write(6, "UVD1U"),
    write(7, "DBGU0"),
    write(8, "XDP"),
    both(13, "OSS"),
    both(14, "HDP"),
    both(15, "SDMA0"),
    both(32, "UVD"),
    both(33, "UVDU"),
    split(34, "MP1", "DBGU1"),
    split(35, "MP0", "MP1"),
    write(36, "MP0"),
    read(44, "UTCL2"),
    both(46, "SDMA1"),
];

/// MMHUB of gfx90a.
pub(crate) static MMHUB_GFX90A: [Client; 19] = [
    both(2, "MP1"),
    both(3, "MP0"),
    both(33, "DBGU_IO0"),
    both(34, "DBGU_IO2"),
    both(36, "MPIO"),
    both(107, "JPEG0"),
    both(108, "VCN0"),
    both(109, "VCNU0"),
    both(139, "JPEG1"),
    both(140, "VCN1"),
    both(141, "VCNU1"),
    both(161, "XDP"),
    both(174, "HDP"),
    both(256, "SDMA0"),
    both(257, "SDMA1"),
    both(258, "SDMA2"),
    both(259, "SDMA3"),
    both(260, "SDMA4"),
    both(384, "OSS"),
];
