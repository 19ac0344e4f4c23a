// SPDX-License-Identifier: GPL-2.0

//! KUnit: interrupt vectors and ring pointers.
//!
//! Outside a module build (`MODULE` unset) the same cases run as ordinary tests on the host.

#[cfg_attr(MODULE, kernel::macros::kunit_tests(rkfd_hw_ih))]
mod tests {
    use crate::hw::ih;
    use crate::hw::ih::Client;
    use crate::hw::ih::CpQueue;
    use crate::hw::ih::Event;
    use crate::hw::ih::Fault;
    use crate::hw::ih::Hub;
    use crate::hw::ih::PacketException;
    use crate::hw::ih::Pending;
    use crate::hw::ih::Ring;
    use crate::hw::ih::SqInterrupt;
    use crate::hw::ih::Vector;
    use crate::hw::ih::WaveError;

    fn event(dw0: u32, data: [u32; 4]) -> Event {
        Vector::decode(&[dw0, 0, 0, 0x8001, data[0], data[1], data[2], data[3]]).event()
    }

    #[test]
    fn a_vector_has_its_fields() {
        let vector = Vector::decode(&[
            0x8365_B514,
            0x89AB_CDEF,
            0xFFFF_4567,
            0x0002_8001,
            0x11,
            0x22,
            0x33,
            0x44,
        ]);
        assert_eq!(vector.client, Client::GrbmCp);
        assert_eq!(vector.source, 181);
        assert_eq!(vector.ring_id, 0x65);
        assert_eq!(vector.vmid, 3);
        assert!(vector.mmhub);
        assert_eq!(vector.timestamp, 0x4567_89AB_CDEF);
        assert_eq!(vector.pasid, 0x8001);
        assert_eq!(vector.node_id, 2);
        assert_eq!(vector.data, [0x11, 0x22, 0x33, 0x44]);
    }

    #[test]
    fn end_of_pipe_names_the_queue() {
        assert_eq!(
            event(0x0065_B514, [77, 0, 0, 0]),
            Event::EndOfPipe {
                queue: CpQueue {
                    me: 1,
                    pipe: 1,
                    queue: 6
                },
                context: 77
            }
        );
    }

    #[test]
    fn sdma_engines_have_scattered_clients() {
        for (client, engine) in [
            (0x08, 0),
            (0x09, 1),
            (0x01, 2),
            (0x04, 3),
            (0x05, 4),
            (0x11, 5),
            (0x13, 6),
            (0x18, 7),
        ] {
            assert_eq!(
                event(0xE000 | client, [0xF123_4567, 0, 0, 0]),
                Event::SdmaTrap {
                    engine,
                    context: 0x0123_4567
                }
            );
        }
    }

    #[test]
    fn a_retry_fault_has_address_and_cam_entry() {
        // Page number 0x8_7654_3210 in the first word and the low bits of the second.
        let data = [0x7654_3210, 0x8 | 0x20 | 0x80, 0xFFFF_FC05, 0];
        assert_eq!(
            event(0x0300_001B, data),
            Event::Fault(Fault {
                hub: Hub::Gfx,
                address: 0x0000_8765_4321_0000,
                execute: false,
                write: true,
                read: false,
                retry: true,
                protection: false,
                cam_index: 5,
            })
        );
    }

    #[test]
    fn a_memory_hub_fault_is_told_apart() {
        let fault = event(0x8308_0012, [1, 0x40, 0, 0]);
        assert!(matches!(
            fault,
            Event::Fault(Fault {
                hub: Hub::Mm,
                address: 0x1000,
                read: true,
                retry: false,
                protection: true,
                ..
            })
        ));
    }

    #[test]
    fn a_bad_packet_names_doorbell_and_reason() {
        assert_eq!(
            event(0x0000_B714, [(20 << 10) | 0x3FF, 0, 0, 0]),
            Event::BadPacket {
                doorbell_id: 0x3FF,
                code: PacketException::UnsupportedPacket
            }
        );
    }

    #[test]
    fn wave_messages_collect_24_bits() {
        // Encoding 1 with data 0x5A_F123 spread over three places.
        let word0 = (1 << 26) | (0xF << 28) | 0x123;
        assert_eq!(
            event(0x0000_EF0A, [word0, 0x5A, 0, 0]),
            Event::Sq(SqInterrupt::Message {
                data: 0x5A_F123,
                privileged: false
            })
        );
        let word0 = 2 << 26;
        assert_eq!(
            event(0x0000_EF0D, [word0, 0x20, 0, 0]),
            Event::Sq(SqInterrupt::Error(WaveError::MemoryViolation))
        );
    }

    #[test]
    fn the_handler_announces_its_other_rings() {
        assert_eq!(event(0x0001_0000, [0; 4]), Event::OtherRing(1));
        assert_eq!(event(0x0001_0100, [0; 4]), Event::Unknown);
    }

    #[test]
    fn rings_have_bounded_power_of_two_sizes() {
        for (bytes, good) in [
            (0, false),
            (16, false),
            (32, true),
            (33, false),
            (4096, true),
            (0x4_0000, true),
            (0x8_0000, false),
        ] {
            assert_eq!(Ring::new(bytes).is_some(), good);
        }
        assert_eq!(Ring::new(0x4_0000).map(Ring::size_field), Some(16));
        assert_eq!(Ring::new(4096).map(Ring::size_field), Some(10));
    }

    #[test]
    fn write_pointers_are_checked() {
        let pending = |wptr| Ring::new(4096).map(|ring| ring.pending(wptr));
        assert_eq!(pending(0), Some(Pending::UpTo(0)));
        assert_eq!(pending(4064), Some(Pending::UpTo(4064)));
        assert_eq!(pending(4096), Some(Pending::Bad(4096)));
        assert_eq!(pending(16), Some(Pending::Bad(16)));
        assert_eq!(pending(u32::MAX), Some(Pending::Bad(u32::MAX)));
    }

    #[test]
    fn an_overflow_restarts_behind_the_write_pointer() {
        let pending = |wptr| Ring::new(4096).map(|ring| ring.pending(wptr));
        assert_eq!(
            pending(0x41),
            Some(Pending::Overflow {
                restart: 0x60,
                end: 0x40
            })
        );
        assert_eq!(
            pending(4064 | 1),
            Some(Pending::Overflow {
                restart: 0,
                end: 4064
            })
        );
    }

    #[test]
    fn positions_wrap() {
        let ring = Ring::new(4096);
        assert_eq!(ring.map(|ring| ring.next(4064)), Some(0));
        assert_eq!(ring.map(|ring| ring.count(4064, 32)), Some(2));
        assert_eq!(ring.map(|ring| ring.count(32, 32)), Some(0));
        assert_eq!(ring.map(|ring| ring.count(32, 0)), Some(127));
        assert_eq!(ring.map(|ring| ring.dword_index(32)), Some(8));
    }

    #[test]
    fn time_stamps_compare_across_the_wrap() {
        assert!(ih::timestamp_after(2, 1));
        assert!(!ih::timestamp_after(1, 1));
        assert!(!ih::timestamp_after(1, 2));
        assert!(ih::timestamp_after(0, 0xFFFF_FFFF_FFFF));
        assert!(!ih::timestamp_after(0xFFFF_FFFF_FFFF, 0));
    }
}
