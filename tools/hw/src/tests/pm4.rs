// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Packets: what is encoded decodes again, and nothing breaks the decoder.

use proptest::prelude::*;

use crate::hw::doorbell::DoorbellOffset;
use crate::hw::pm4::process::Debug;
use crate::hw::pm4::{
    decode, op, DoorbellList, Engine, Header, IndirectBuffer, InterfaceQueue, InvalidateTlbs,
    MapProcess, MapProcessFlavour, MapQueues, MapTarget, Packet, Packets, QueryCommand,
    QueryStatus, QueueClass, RegisterHandshake, ReleaseMem, RunList, SetResources, SetUconfigReg,
    Trap, UnmapAction, UnmapFilter, UnmapQueues, WriteMem, WriteReg,
};
use crate::hw::regs::gc::{self, ShMemBases, ShMemConfig};
use crate::hw::regs::hqd::Slot;
use crate::hw::regs::hub::FlushType;
use crate::hw::regs::Reg;

fn address(align: u64) -> impl Strategy<Value = u64> {
    (0u64..1 << 48).prop_map(move |address| address & !(align - 1))
}

fn doorbell() -> impl Strategy<Value = DoorbellOffset> {
    (0u32..1 << 25).prop_map(DoorbellOffset::kernel)
}

fn slot() -> impl Strategy<Value = Slot> {
    (0u32..64).prop_filter_map("a slot", Slot::from_bit)
}

fn target() -> impl Strategy<Value = MapTarget> {
    let engine = prop_oneof![Just(Engine::Compute), (0u8..16).prop_map(Engine::Sdma)];
    prop_oneof![
        (engine, any::<bool>(), any::<bool>()).prop_map(|(engine, is_static, gws)| {
            MapTarget::Scheduled {
                engine,
                class: if is_static && engine == Engine::Compute {
                    QueueClass::Static
                } else {
                    QueueClass::Normal
                },
                gws,
            }
        }),
        (slot(), 0u32..16).prop_map(|(slot, vmid)| MapTarget::KiqCompute { slot, vmid }),
        slot().prop_map(|slot| MapTarget::KiqHiq { slot }),
    ]
}

fn unmap() -> impl Strategy<Value = UnmapQueues> {
    let filter = prop_oneof![
        proptest::collection::vec(doorbell(), 1..=4).prop_filter_map("a list", |doorbells| {
            DoorbellList::new(&doorbells).map(UnmapFilter::Doorbells)
        }),
        any::<u16>().prop_map(UnmapFilter::Pasid),
        Just(UnmapFilter::All),
        Just(UnmapFilter::NonStatic),
    ];
    let action = prop_oneof![
        Just(UnmapAction::Preempt),
        Just(UnmapAction::Reset),
        Just(UnmapAction::DisableProcess),
    ];
    (action, filter).prop_map(|(action, filter)| UnmapQueues { action, filter })
}

proptest! {
    #[test]
    fn set_resources(vmid_mask: u16, unmap_latency: u8, xnack_check: bool, queue_mask: u64, gws_mask: u64, oac_mask: u16) {
        let packet = SetResources {
            vmid_mask, unmap_latency, xnack_check, queue: InterfaceQueue::Hiq, queue_mask, gws_mask, oac_mask,
        };
        let dw = packet.encode();
        prop_assert_eq!(decode(&dw).packet, Packet::SetResources(packet));
    }

    #[test]
    fn run_list(ib in address(4), dwords in 0u32..1 << 20, chain: bool, process_count in 0u32..16) {
        let packet = RunList { ib, dwords, chain, process_count };
        let dw = packet.encode().map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(decode(&dw).packet, Packet::RunList(packet));
    }

    #[test]
    fn map_process(pasid: u16, root: u64, xnack: bool, trap in proptest::option::of((address(256), address(256))), quantum in 0u32..128, num_queues in 0u32..1024, num_gws in 0u32..128, cleaner_shader: bool, diq: bool, single_memops: bool, spi: u32, tcp_watch_cntl: [u32; 4]) {
        // A trap handler at address 0 cannot be told from none.
        let trap = trap.filter(|(tba, tma)| tba | tma != 0).map(|(tba, tma)| Trap { tba, tma });
        let packet = MapProcess {
            pasid,
            page_table_base: root,
            sh_mem_config: ShMemConfig::for_xnack(xnack),
            sh_mem_bases: ShMemBases::KFD,
            trap, quantum, num_queues, num_gws, cleaner_shader, diq,
            debug: Debug { single_memops, spi_gdbg_per_vmid_cntl: spi, tcp_watch_cntl },
        };
        let mut out = [0; 21];
        let n = packet.encode_to(MapProcessFlavour::Aldebaran, &mut out);
        prop_assert_eq!(n, Ok(21));
        prop_assert_eq!(decode(&out).packet, Packet::MapProcess(packet));
        let n = packet.encode_to(MapProcessFlavour::V9, &mut out);
        prop_assert_eq!(n, Ok(16));
        let plain = MapProcess { debug: Debug::default(), ..packet };
        prop_assert_eq!(decode(&out[..16]).packet, Packet::MapProcess(plain));
    }

    #[test]
    fn map_queues(target in target(), doorbell in doorbell(), mqd in address(4), wptr in address(4)) {
        let packet = MapQueues { target, doorbell, mqd, wptr };
        let dw = packet.encode().map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(decode(&dw).packet, Packet::MapQueues(packet));
    }

    #[test]
    fn unmap_queues(packet in unmap()) {
        let dw = packet.encode();
        prop_assert_eq!(decode(&dw).packet, Packet::UnmapQueues(packet));
    }

    #[test]
    fn query_status(context_id in 0u32..1 << 28, fence in address(8), value: u64, n in 0usize..4) {
        let command = [QueryCommand::Interrupt, QueryCommand::FenceImmediate, QueryCommand::FenceAfterAck, QueryCommand::FenceAndInterrupt][n];
        let packet = QueryStatus { context_id, command, fence, value };
        let dw = packet.encode().map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(decode(&dw).packet, Packet::QueryStatus(packet));
    }

    #[test]
    fn writes(dword in 0u32..1 << 18, value: u32, high: Option<u32>, address in address(4), no_increment: bool, confirm: bool) {
        let reg = WriteReg { reg: Reg::new(0, dword), value, no_increment, confirm };
        let dw = reg.encode().map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(decode(&dw).packet, Packet::WriteReg(reg));
        let mem = WriteMem { address, value, high, confirm };
        let dw = mem.encode().map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(decode(&dw[..mem.dwords()]).packet, Packet::WriteMem(mem));
    }

    #[test]
    fn small_packets(offset in 0u32..0x4000, value: u32, pasid: u16, all_hubs: bool, address in address(4), dwords in 0u32..1 << 20, vmid in 0u32..16, chain: bool, mask: u32) {
        let set = SetUconfigReg { reg: Reg::new(gc::UCONFIG_SPACE, offset), value };
        let dw = set.encode().map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(decode(&dw).packet, Packet::SetUconfigReg(set));
        let flush = InvalidateTlbs { pasid, flush: FlushType::Light, all_hubs };
        let dw = flush.encode();
        prop_assert_eq!(decode(&dw).packet, Packet::InvalidateTlbs(flush));
        let ib = IndirectBuffer { address, dwords, vmid, chain };
        let dw = ib.encode().map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(decode(&dw).packet, Packet::IndirectBuffer(ib));
        let wait = RegisterHandshake { request: Reg::new(0, offset), acknowledge: Reg::new(0, offset + 1), reference: value, mask };
        let dw = wait.encode().map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(decode(&dw).packet, Packet::RegisterHandshake(wait));
    }

    #[test]
    fn release_mem(address in address(8), value: u64, wide: bool, interrupt: Option<u32>) {
        let value = if wide { value } else { value & 0xFFFF_FFFF };
        let packet = ReleaseMem { address, value, wide, interrupt };
        let dw = packet.encode().map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(decode(&dw).packet, Packet::ReleaseMem(packet));
    }

    #[test]
    fn random_dwords_never_stop_the_decoder(dw in proptest::collection::vec(any::<u32>(), 0..200)) {
        let mut used = 0;
        for decoded in Packets::new(&dw) {
            prop_assert!(decoded.dwords > 0);
            prop_assert!(!decoded.to_string().is_empty());
            used += decoded.dwords;
        }
        prop_assert_eq!(used, dw.len());
    }

    #[test]
    fn random_payloads_of_known_opcodes_decode_or_are_foreign(n in 0usize..14, length in 2usize..30, payload: [u32; 32]) {
        let opcode = [op::NOP, op::WRITE_DATA, op::WAIT_REG_MEM, op::INDIRECT_BUFFER, op::RELEASE_MEM, op::SET_UCONFIG_REG, op::INVALIDATE_TLBS, op::SET_RESOURCES, op::MAP_PROCESS, op::MAP_QUEUES, op::UNMAP_QUEUES, op::QUERY_STATUS, op::RUN_LIST, 0xFF][n];
        let mut dw = payload[..length].to_vec();
        dw[0] = Header::packet(opcode, length).raw();
        let decoded = decode(&dw);
        prop_assert_eq!(decoded.dwords, length);
        prop_assert!(!decoded.to_string().is_empty());
    }

    #[test]
    fn what_decodes_encodes_to_the_same_dwords(n in 0usize..4, payload: [u32; 8]) {
        let (opcode, length) = [(op::RUN_LIST, 4), (op::MAP_QUEUES, 7), (op::QUERY_STATUS, 7), (op::SET_RESOURCES, 8)][n];
        let mut dw = payload;
        dw[0] = Header::packet(opcode, length).raw();
        let again = match decode(&dw[..length]).packet {
            Packet::RunList(p) => p.encode().ok().map(|dw| dw.to_vec()),
            Packet::MapQueues(p) => p.encode().ok().map(|dw| dw.to_vec()),
            Packet::QueryStatus(p) => p.encode().ok().map(|dw| dw.to_vec()),
            Packet::SetResources(p) => Some(p.encode().to_vec()),
            _ => None,
        };
        if let Some(again) = again {
            prop_assert_eq!(&again[..], &dw[..length]);
        }
    }
}

#[test]
fn a_preemption_that_keeps_the_slot_carries_the_pointer() {
    let packet = UnmapQueues {
        action: UnmapAction::PreemptNoUnmap { rb_wptr: 0x1234 },
        filter: UnmapFilter::Doorbells(DoorbellList::one(DoorbellOffset::kernel(4))),
    };
    let dw = packet.encode();
    assert_eq!(dw, [0xC004_A300, 0x2000_0003, 0x20, 0x1234, 0, 0]);
    assert_eq!(decode(&dw).packet, Packet::UnmapQueues(packet));
}

#[test]
fn doorbell_lists_hold_one_to_four() {
    let doorbells = [DoorbellOffset::kernel(1); 5];
    assert_eq!(DoorbellList::new(&[]), None);
    assert!(DoorbellList::new(&doorbells[..4]).is_some());
    assert_eq!(DoorbellList::new(&doorbells), None);
}

#[test]
fn packets_print_names_and_fields() {
    let text = |dw: &[u32]| decode(dw).to_string();
    assert_eq!(
        text(&[0xC002_A500, 0x1000, 0x80, 0x03D0_002A]),
        "RUN_LIST ib 0x8000001000 dwords 42 processes 3 chain"
    );
    assert_eq!(
        text(&[0xC003_3700, 0x0001_0000, 0x30B0, 0, 0x1234]),
        "WRITE_DATA CP_IQ_WAIT_TIME2 = 0x1234"
    );
    assert_eq!(
        text(&[0xC004_A300, 0x30, 0, 0, 0, 0]),
        "UNMAP_QUEUES Preempt all non-static"
    );
    assert_eq!(
        text(&[0xC005_A200, 0x2800_0014, 0x8A0, 0x1000, 0, 0x38, 0x7F02]),
        "MAP_QUEUES Sdma(2) Normal doorbell 0x8a0 mqd 0x1000 wptr 0x7f0200000038"
    );
    assert_eq!(
        text(&[0xC003_1500, 1, 2, 3, 4]),
        "DISPATCH_DIRECT: c0031500 00000001 00000002 00000003 00000004"
    );
    assert_eq!(text(&[0x1234]), "not a packet: 0x00001234");
    assert_eq!(text(&[0xFFFF_1000]), "NOP dwords 1");
}

#[test]
fn a_type_two_filler_is_one_dword() {
    let decoded: Vec<_> = Packets::new(&[0x8000_0000, 0xFFFF_1000, 0xC001_1000, 1, 2])
        .map(|decoded| decoded.dwords)
        .collect();
    assert_eq!(decoded, [1, 1, 3]);
}

#[test]
fn a_header_never_becomes_the_short_nop() {
    // The longest length that has an encoding, and what would be one more.
    assert_eq!(Header::packet(op::NOP, 0x4000).dwords(), Some(0x4000));
    assert_eq!(Header::packet(op::NOP, 0x4001).dwords(), Some(0x4000));
}
