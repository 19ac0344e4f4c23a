// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Loads and stores of buffers with conversion, against a reference that takes an element apart bit by bit.

#![allow(
    clippy::precedence,
    clippy::needless_range_loop,
    clippy::unwrap_used,
    clippy::panic,
    reason = "fields are shifted and masked, and lanes counted, everywhere"
)]

mod common;

use common::machine::Machine;
use common::machine::BASE;
use common::seed;
use common::without_llvm;
use common::Random;
use gfx9_isa::env::Lanes;
use gfx9_isa::exec::Exception;
use gfx9_isa::inst::Asic;
use gfx9_isa::wave::reg;
use half::f16;

const UNORM: u32 = 0;
const SNORM: u32 = 1;
const USCALED: u32 = 2;
const SSCALED: u32 = 3;
const UINT: u32 = 4;
const SINT: u32 = 5;
const FLOAT: u32 = 7;
const NUMBERS: [u32; 7] = [UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT];

/// The first bit and the bits of X, Y, Z and W.
fn fields(data: u32) -> Vec<(u32, u32)> {
    match data {
        1 => vec![(0, 8)],
        2 => vec![(0, 16)],
        3 => vec![(0, 8), (8, 8)],
        4 => vec![(0, 32)],
        5 => vec![(0, 16), (16, 16)],
        6 => vec![(0, 11), (11, 11), (22, 10)],
        7 => vec![(0, 10), (10, 11), (21, 11)],
        8 => vec![(0, 2), (2, 10), (12, 10), (22, 10)],
        9 => vec![(0, 10), (10, 10), (20, 10), (30, 2)],
        10 => vec![(0, 8), (8, 8), (16, 8), (24, 8)],
        11 => vec![(0, 32), (32, 32)],
        12 => vec![(0, 16), (16, 16), (32, 16), (48, 16)],
        13 => vec![(0, 32), (32, 32), (64, 32)],
        14 => vec![(0, 32), (32, 32), (64, 32), (96, 32)],
        _ => panic!("no such format"),
    }
}

/// Whether a data format has such numbers.
fn exists(data: u32, number: u32) -> bool {
    let narrow = fields(data).iter().all(|(_, bits)| *bits < 32);
    match number {
        UINT | SINT => true,
        FLOAT => fields(data)
            .iter()
            .all(|(_, bits)| matches!(bits, 10 | 11 | 16 | 32) && !matches!(data, 8 | 9)),
        _ => narrow,
    }
}

/// The value of a field.
fn value(number: u32, field: u128, bits: u32) -> u32 {
    let negative = field >> (bits - 1) & 1 != 0;
    let signed = field as i128 - if negative { 1 << bits } else { 0 };
    let most = (1i128 << bits) - 1;
    let float = match number {
        UINT => return field as u32,
        SINT => return signed as i32 as u32,
        UNORM => field as f64 / most as f64,
        SNORM => (signed as f64 / (most / 2) as f64).max(-1.0),
        USCALED => field as f64,
        SSCALED => signed as f64,
        _ => match bits {
            32 => return field as u32,
            16 => f16::from_bits(field as u16).to_f64(),
            _ => {
                let mantissa = bits - 5;
                let part = (field % (1 << mantissa)) as f64 / f64::from(1u32 << mantissa);
                match (field >> mantissa) as i32 {
                    0 => part * 2f64.powi(-14),
                    31 if part == 0.0 => f64::INFINITY,
                    31 => f64::NAN,
                    exponent => (1.0 + part) * 2f64.powi(exponent - 15),
                }
            }
        },
    };
    (float as f32).to_bits()
}

fn same(number: u32, found: u32, expected: u32) -> bool {
    let nan = |x: u32| f32::from_bits(x).is_nan();
    found == expected || (number == FLOAT && nan(found) && nan(expected))
}

/// A buffer of `records` bytes, or elements if it has a stride, with the last dword of its resource.
fn buffer(machine: &mut Machine, stride: u32, records: u32, last: u32) {
    machine.wave.sgpr[4] = BASE as u32;
    machine.wave.sgpr[5] = (BASE >> 32) as u32 | stride << 16;
    machine.wave.sgpr[6] = records;
    machine.wave.sgpr[7] = last;
}

/// The format as an operand has it.
fn operand(data: u32, number: u32) -> String {
    format!("format:{}", data | number << 4)
}

const LETTERS: [&str; 4] = ["x", "xy", "xyz", "xyzw"];

fn registers(first: u32, count: usize) -> String {
    match count {
        1 => format!("v{first}"),
        count => format!("v[{first}:{}]", first as usize + count - 1),
    }
}

/// Memory full of random bytes, and an offset for each lane in v0.
fn random_memory(asic: Asic, random: &mut Random) -> Machine {
    let mut machine = Machine::new(asic);
    for byte in &mut machine.memory.bytes {
        *byte = random.next() as u8;
    }
    machine.set(0, std::array::from_fn(|lane| 16 * lane as u32));
    buffer(&mut machine, 0, 1 << 16, 0);
    machine
}

fn element(machine: &Machine, at: usize) -> u128 {
    let bytes = machine.memory.bytes[at..at + 16].try_into().unwrap();
    u128::from_le_bytes(bytes)
}

fn field(element: u128, (at, bits): (u32, u32)) -> u128 {
    element >> at & ((1 << bits) - 1)
}

#[test]
fn loads_of_every_format_convert_its_fields() {
    if without_llvm("typed loads") {
        return;
    }
    let mut random = Random(seed());
    for data in 1..15 {
        for number in NUMBERS.into_iter().filter(|number| exists(data, *number)) {
            let mut machine = random_memory(Asic::Gfx90a, &mut random);
            for at in 2..6 {
                machine.set(at, [0xDEAD_BEEF; 64]);
            }
            let format = operand(data, number);
            let text = format!("tbuffer_load_format_xyzw v[2:5], v0, s[4:7], 0 {format} offen");
            machine.asm(&text).unwrap();
            for lane in 0..64 {
                let bytes = element(&machine, 16 * lane);
                let want: Vec<u32> = fields(data)
                    .into_iter()
                    .map(|place| value(number, field(bytes, place), place.1))
                    .collect();
                for at in 0..4 {
                    // What the element has not is 0.
                    let want = want.get(at).copied().unwrap_or(0);
                    let found = machine.get(2 + at)[lane];
                    assert!(
                        same(number, found, want),
                        "{text}: {bytes:#x} component {at}: {found:#x}, not {want:#x}"
                    );
                }
            }
        }
    }
}

/// All fields of up to 16 bits come back as they were, but for those that stand for the same value as another one.
#[test]
fn stores_put_back_what_loads_give() {
    if without_llvm("typed stores") {
        return;
    }
    let mut random = Random(seed());
    for data in 1..15 {
        for number in NUMBERS.into_iter().filter(|number| exists(data, *number)) {
            let mut machine = random_memory(Asic::Gfx90a, &mut random);
            let before = machine.memory.bytes.clone();
            let format = operand(data, number);
            let load = format!("tbuffer_load_format_xyzw v[2:5], v0, s[4:7], 0 {format} offen");
            let store = format!(
                "tbuffer_store_format_xyzw v[2:5], v0, s[4:7], 0 {format} offen offset:2048"
            );
            machine.asm(&format!("{load}\n{store}")).unwrap();
            let size: u32 = fields(data).iter().map(|(_, bits)| bits).sum::<u32>() / 8;
            for lane in 0..64 {
                let from = element(&machine, 16 * lane);
                let to = element(&machine, 2048 + 16 * lane);
                for place in fields(data) {
                    let (from, to) = (field(from, place), field(to, place));
                    let least = 1u128 << (place.1 - 1);
                    let want = match number {
                        // Both are -1.
                        SNORM if from == least => least + 1,
                        _ => from,
                    };
                    let nan = number == FLOAT
                        && f32::from_bits(value(number, from, place.1)).is_nan()
                        && f32::from_bits(value(number, to, place.1)).is_nan();
                    assert!(to == want || nan, "{store}: {to:#x}, not {want:#x}");
                }
                // Nothing else is written.
                let (end, next) = (2048 + 16 * lane + size as usize, 2064 + 16 * lane);
                assert_eq!(
                    machine.memory.bytes[end..next],
                    before[end..next],
                    "{store}"
                );
            }
        }
    }
}

/// One value in all components, and the element that a store leaves.
fn stored(data: u32, number: u32, component: u32) -> u128 {
    let mut machine = Machine::new(Asic::Gfx90a);
    buffer(&mut machine, 0, 64, 0);
    for at in 2..6 {
        machine.set(at, [component; 64]);
    }
    machine.wave.set_pair(reg::EXEC, 1);
    let format = operand(data, number);
    let text = format!("tbuffer_store_format_xyzw v[2:5], off, s[4:7], 0 {format}");
    machine.asm(&text).unwrap();
    element(&machine, 0)
}

#[test]
fn stores_round_and_clamp() {
    if without_llvm("rounding of typed stores") {
        return;
    }
    let float = |x: f32| x.to_bits();
    let nan = f32::NAN;
    for (data, number, component, want) in [
        (1, UNORM, float(2.0), 0xFF),
        (1, UNORM, float(-1.0), 0),
        (1, UNORM, float(nan), 0),
        // 127.5 of 255, and 32767.5 of 65535: both to even.
        (1, UNORM, float(0.5), 0x80),
        (2, UNORM, float(0.5), 0x8000),
        (1, SNORM, float(-2.0), 0x81),
        (1, SNORM, float(1.0), 0x7F),
        (1, SNORM, float(-0.5), 0xC0),
        (9, UNORM, float(1.0), 0xFFFF_FFFF),
        // In two bits there are -1, 0 and 1.
        (9, SNORM, float(-1.0), 0xE018_0601),
        (1, USCALED, float(300.0), 0xFF),
        (1, USCALED, float(7.9), 7),
        (1, SSCALED, float(-300.0), 0x80),
        (1, SSCALED, float(-7.9), 0xF9),
        (1, UINT, 0x1234, 0xFF),
        (1, SINT, 0x1234, 0x7F),
        (1, SINT, -0x1234i32 as u32, 0x80),
        (1, SINT, -5i32 as u32, 0xFB),
        (4, SINT, 0x8000_0000, 0x8000_0000),
        // 1 as floats of 16, of 11, 11 and 10, and of 10, 11 and 11 bits.
        (2, FLOAT, float(1.0), 0x3C00),
        (6, FLOAT, float(1.0), 0x3C0 | 0x3C0 << 11 | 0x1E0 << 22),
        (7, FLOAT, float(1.0), 0x1E0 | 0x3C0 << 10 | 0x3C0 << 21),
        // The small ones have no sign.
        (6, FLOAT, float(-1.0), 0),
        (
            6,
            FLOAT,
            float(f32::INFINITY),
            0x7C0 | 0x7C0 << 11 | 0x3E0 << 22,
        ),
        (2, FLOAT, float(65520.0), 0x7C00),
        (4, FLOAT, 0x7F80_0001, 0x7F80_0001),
    ] {
        let found = stored(data, number, component);
        assert_eq!(found, want, "{data} {number} of {component:#x}: {found:#x}");
    }
}

#[test]
fn fewer_registers_are_the_first_components() {
    if without_llvm("parts of typed elements") {
        return;
    }
    let mut random = Random(seed());
    for count in 1..=4 {
        let letters = LETTERS[count - 1];
        let mut machine = random_memory(Asic::Gfx906, &mut random);
        for at in 2..6 {
            machine.set(at, [at as u32; 64]);
        }
        let list = registers(2, count);
        let format = operand(10, UINT);
        let text = format!("tbuffer_load_format_{letters} {list}, v0, s[4:7], 0 {format} offen");
        machine.asm(&text).unwrap();
        for at in 0..4 {
            let byte = |lane: usize| u32::from(machine.memory.bytes[16 * lane + at]);
            let want: Lanes = match at < count {
                true => std::array::from_fn(byte),
                false => [2 + at as u32; 64],
            };
            assert_eq!(machine.get(2 + at), want, "{text}, component {at}");
        }
        // The rest of the element becomes 0.
        let text = format!(
            "tbuffer_store_format_{letters} {list}, v0, s[4:7], 0 {format} offen offset:2048"
        );
        machine.asm(&text).unwrap();
        for lane in 0..64 {
            let word = |at: usize| element(&machine, at + 16 * lane) as u32;
            let mask = u32::MAX >> (32 - 8 * count);
            assert_eq!(word(2048), word(0) & mask, "{text}");
        }
    }
}

/// Two components in a register, floats of 16 bits or integers; an odd one leaves the other half as other loads do.
#[test]
fn halves_of_registers_hold_components() {
    if without_llvm("typed halves") {
        return;
    }
    let mut random = Random(seed());
    for asic in [Asic::Gfx906, Asic::Gfx90a] {
        for clears in [false, true] {
            for (data, number) in [
                (12, UINT),
                (12, FLOAT),
                (12, SINT),
                (10, SSCALED),
                (10, UNORM),
            ] {
                for count in 1..=4_usize {
                    let mut machine = random_memory(asic, &mut random);
                    machine.wave.d16_clears = clears;
                    machine.set(2, [0x1111_2222; 64]);
                    machine.set(3, [0x1111_2222; 64]);
                    let list = registers(2, count.div_ceil(2));
                    let letters = LETTERS[count - 1];
                    let format = operand(data, number);
                    let text = format!(
                        "tbuffer_load_format_d16_{letters} {list}, v0, s[4:7], 0 {format} offen"
                    );
                    machine.asm(&text).unwrap();
                    for lane in 0..64 {
                        let bytes = element(&machine, 16 * lane);
                        for (at, place) in fields(data).into_iter().enumerate() {
                            let half = machine.get(2 + at / 2)[lane] >> (16 * (at % 2)) & 0xFFFF;
                            let whole = value(number, field(bytes, place), place.1);
                            let whole = match number {
                                UINT | SINT => whole & 0xFFFF,
                                _ => f16::from_f32(f32::from_bits(whole)).to_bits().into(),
                            };
                            let kept = match at {
                                at if at < count => whole,
                                at if at / 2 < count.div_ceil(2) && clears => 0,
                                at if at % 2 == 1 => 0x1111,
                                _ => 0x2222,
                            };
                            let is_nan = |x: u32| x & 0x7FFF > 0x7C00;
                            let nans = number == FLOAT && is_nan(half) && is_nan(kept);
                            assert!(
                                half == kept || nans,
                                "{text} {at}: {half:#x}, not {kept:#x}"
                            );
                        }
                    }
                    // And back.
                    let text = format!(
                        "tbuffer_store_format_d16_{letters} {list}, v0, s[4:7], 0 {format} offen \
                         offset:2048"
                    );
                    machine.asm(&text).unwrap();
                    for lane in 0..64 {
                        let (from, to) = (
                            element(&machine, 16 * lane),
                            element(&machine, 2048 + 16 * lane),
                        );
                        for place in fields(data).into_iter().take(count) {
                            let (from, to) = (field(from, place), field(to, place));
                            let nans =
                                number == FLOAT && from & 0x7FFF > 0x7C00 && to & 0x7FFF > 0x7C00;
                            assert!(from == to || nans, "{text}: {to:#x}, not {from:#x}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn one_component_goes_to_and_comes_from_the_upper_half() {
    if without_llvm("upper halves") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx906);
    machine.wave.d16_clears = false;
    // 8_8_8_8, unsigned, components as they are.
    let last = 4 | 5 << 3 | 6 << 6 | 7 << 9 | UINT << 12 | 10 << 15;
    buffer(&mut machine, 0, 64, last);
    machine.memory.set_word(0, 0x0403_02F1);
    machine.set(2, [0x1111_2222; 64]);
    let text = "buffer_load_format_d16_hi_x v2, off, s[4:7], 0\n\
        buffer_store_format_d16_hi_x v2, off, s[4:7], 0 offset:4";
    machine.asm(text).unwrap();
    assert_eq!(machine.get(2), [0x00F1_2222; 64]);
    assert_eq!(machine.memory.word(1), 0xF1);
}

/// `buffer_*_format_*` take format and order from the resource, and constants for what is not selected.
#[test]
fn the_resource_selects_components() {
    if without_llvm("selected components") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    // W, 1, 0, X of 8_8_8_8.
    let select = 7 | 1 << 3 | 4 << 9;
    for (number, expected) in [
        (UINT, [0x44, 1, 0, 0x11]),
        (USCALED, [68f32, 1.0, 0.0, 17.0].map(f32::to_bits)),
    ] {
        buffer(&mut machine, 0, 64, select | number << 12 | 10 << 15);
        machine.memory.set_word(2, 0x4433_2211);
        let load = "buffer_load_format_xyzw v[2:5], off, s[4:7], 0 offset:8";
        machine.asm(load).unwrap();
        let found: Vec<u32> = (2..6).map(|at| machine.get(at)[63]).collect();
        assert_eq!(found, expected);
        // A store puts them where a load takes them from.
        let store = "buffer_store_format_xyzw v[2:5], off, s[4:7], 0 offset:12";
        machine.asm(store).unwrap();
        assert_eq!(machine.memory.word(3), 0x4400_0011);
    }
}

/// An element that is partly beyond the end is not accessed; by index, each one below the number of records is.
#[test]
fn elements_are_in_range_or_not() {
    if without_llvm("ranges of typed elements") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    for word in 0..64 {
        machine.memory.set_word(word, 0x100 + word as u32);
    }
    machine.set(0, std::array::from_fn(|lane| 4 * lane as u32));
    buffer(&mut machine, 0, 20, 0);
    let format = operand(11, UINT);
    let text = format!("tbuffer_load_format_xy v[2:3], v0, s[4:7], 0 {format} offen");
    machine.asm(&text).unwrap();
    // The element at 12 is the last one that ends at 20.
    let want = std::array::from_fn(|lane| if lane < 4 { 0x100 + lane as u32 } else { 0 });
    assert_eq!(machine.get(2), want);
    machine.set(3, [7; 64]);
    let text = format!("tbuffer_store_format_xy v[2:3], v0, s[4:7], 0 {format} offen");
    machine.asm(&text).unwrap();
    assert_eq!(machine.memory.word(4), 7);
    assert_eq!(machine.memory.word(5), 0x105);
    // Elements of 12 bytes at each 16.
    machine.set(0, std::array::from_fn(|lane| lane as u32));
    buffer(&mut machine, 16, 3, 0);
    let format = operand(13, UINT);
    let text = format!("tbuffer_load_format_xyz v[2:4], v0, s[4:7], 0 {format} idxen");
    for word in 0..64 {
        machine.memory.set_word(word, 0x100 + word as u32);
    }
    machine.asm(&text).unwrap();
    for at in 0..3 {
        let want = |lane: usize| {
            if lane < 3 {
                0x100 + (4 * lane + at) as u32
            } else {
                0
            }
        };
        assert_eq!(
            machine.get(2 + at),
            std::array::from_fn(want),
            "component {at}"
        );
    }
}

#[test]
fn a_resource_of_zeros_is_no_buffer() {
    if without_llvm("no buffer") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    machine.set(2, [5; 64]);
    machine
        .asm("buffer_store_format_x v2, off, s[4:7], 0")
        .unwrap();
    machine
        .asm("buffer_load_format_x v2, off, s[4:7], 0")
        .unwrap();
    assert_eq!(machine.get(2), [0; 64]);
    assert_eq!(machine.memory.faults, 0);
}

#[test]
fn loads_to_lds_convert() {
    if without_llvm("typed loads to LDS") {
        return;
    }
    let mut machine = Machine::new(Asic::Gfx90a);
    let last = 4 | UNORM << 12 | 1 << 15;
    buffer(&mut machine, 0, 64, last);
    machine.memory.bytes[3] = 0xFF;
    machine.set(0, std::array::from_fn(|lane| lane as u32));
    machine.wave.sgpr[usize::from(reg::M0)] = 256;
    machine
        .asm("buffer_load_format_x v0, s[4:7], 0 offen lds")
        .unwrap();
    let word = |lane: usize| {
        let at = 256 + 4 * lane;
        u32::from_le_bytes(machine.lds[at..at + 4].try_into().unwrap())
    };
    assert_eq!([word(2), word(3), word(4)], [0, 1f32.to_bits(), 0]);
}

#[test]
fn formats_that_do_not_exist_are_refused() {
    if without_llvm("no formats") {
        return;
    }
    let mut refused = 0;
    for format in 0..128u32 {
        let (data, number) = (format & 15, format >> 4);
        let good = match data {
            0 => number != 6,
            15 => false,
            data => NUMBERS.contains(&number) && exists(data, number),
        };
        let mut machine = Machine::new(Asic::Gfx90a);
        buffer(&mut machine, 0, 64, 0);
        let text = format!("tbuffer_load_format_x v2, off, s[4:7], 0 format:{format}");
        let illegal = matches!(machine.asm(&text), Err(Exception::Illegal { .. }));
        assert_eq!(illegal, !good, "{text}");
        refused += u32::from(illegal);
    }
    assert!(refused > 16);
}
