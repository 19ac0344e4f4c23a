// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Data formats of buffers: from the bytes of an element to components, and back.
//!
//! Names and numbers of the formats: `BUF_DATA_FORMAT` and `BUF_NUM_FORMAT` of `vega10_enum.h`.  A name lists its fields
//! from the highest bit on, X is in the lowest one.

use crate::fp;

/// How a field of an element stands for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// 0 to 1.
    Unorm,
    /// -1 to 1; the least field is -1 as well.
    Snorm,
    /// An integer that becomes a float.
    Uscaled,
    /// As [`Number::Uscaled`], signed.
    Sscaled,
    Uint,
    Sint,
    Float,
}

/// A data format with its number format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    /// Bits of the fields, from the lowest one.  None lies in two dwords.
    fields: &'static [u32],
    number: Number,
}

/// Bits of the fields of each data format; none for the invalid one, which stands for a buffer that is not there.
const FIELDS: [&[u32]; 15] = [
    &[],
    &[8],
    &[16],
    &[8, 8],
    &[32],
    &[16, 16],
    &[11, 11, 10],
    &[10, 11, 11],
    &[2, 10, 10, 10],
    &[10, 10, 10, 2],
    &[8, 8, 8, 8],
    &[32, 32],
    &[16, 16, 16, 16],
    &[32, 32, 32],
    &[32, 32, 32, 32],
];

/// The greatest unsigned field of `bits` bits.
fn greatest(bits: u32) -> u32 {
    u32::MAX >> (32 - bits)
}

/// The greatest signed field of `bits` bits.
fn greatest_signed(bits: u32) -> i32 {
    i32::MAX >> (32 - bits)
}

/// A positive `f32` as a float of 5 bits of exponent, without sign, and `mantissa` bits of mantissa.
fn small_float(value: u32, mantissa: u32) -> u32 {
    let infinity = 0x1F << mantissa;
    let float = f32::from_bits(value);
    if float.is_nan() {
        infinity | 1 << (mantissa - 1)
    } else if float <= 0.0 {
        0
    } else if float.is_infinite() {
        infinity
    } else {
        fp::round_magnitude(f64::from(float), mantissa + 1, -14, 0) as u32
    }
}

impl Format {
    /// The format of a data format (bits 3:0) and a number format (6:4).
    ///
    /// # Errors
    /// One of them is reserved, or they do not go together.
    pub(super) fn new(format: u8) -> Result<Self, &'static str> {
        let number = match format >> 4 & 7 {
            0 => Number::Unorm,
            1 => Number::Snorm,
            2 => Number::Uscaled,
            3 => Number::Sscaled,
            4 => Number::Uint,
            5 => Number::Sint,
            7 => Number::Float,
            _ => return Err("the number format is reserved"),
        };
        let Some(fields) = FIELDS.get(usize::from(format & 15)) else {
            return Err("the data format is reserved");
        };
        let has = |bits: u32| fields.contains(&bits);
        let good = match number {
            Number::Uint | Number::Sint => true,
            Number::Float => !has(8) && !has(2),
            _ => !has(32),
        };
        if good {
            Ok(Self { fields, number })
        } else {
            Err("the data format has no such numbers")
        }
    }

    /// Bytes of an element; 0 if there is no buffer.
    pub(super) fn bytes(self) -> u32 {
        self.fields.iter().sum::<u32>() / 8
    }

    /// Whether the values are floats.
    fn is_float(self) -> bool {
        !matches!(self.number, Number::Uint | Number::Sint)
    }

    /// The value 1.
    pub(super) fn one(self) -> u32 {
        if self.is_float() {
            1f32.to_bits()
        } else {
            1
        }
    }

    /// The value of a field of `bits` bits.
    fn value(self, field: u32, bits: u32) -> u32 {
        let signed = (field << (32 - bits)) as i32 >> (32 - bits);
        // Fields of floats that are not of 32 bits are exact in a double, and integers of up to 16 bits in a float.
        let float = match self.number {
            Number::Uint => return field,
            Number::Sint => return signed as u32,
            Number::Float => match bits {
                32 => return field,
                16 => return fp::f16_to_f32(field),
                // The exponent is that of 16 bits.
                _ => return fp::f16_to_f32(field << (15 - bits)),
            },
            Number::Unorm => f64::from(field) / f64::from(greatest(bits)),
            Number::Snorm => (f64::from(signed) / f64::from(greatest_signed(bits))).max(-1.0),
            Number::Uscaled => f64::from(field),
            Number::Sscaled => f64::from(signed),
        };
        (float as f32).to_bits()
    }

    /// The field of `bits` bits that is nearest to a value.  Integers beyond its range become the greatest or least one,
    /// normalized values are rounded to nearest even, scaled ones towards 0, and what is no number is 0.
    fn field(self, value: u32, bits: u32) -> u32 {
        let float = f64::from(f32::from_bits(value));
        let (most, high) = (greatest(bits), greatest_signed(bits));
        let low = -high - 1;
        let signed = match self.number {
            Number::Uint => return value.min(most),
            Number::Float => {
                return match bits {
                    32 => value,
                    16 => fp::f32_to_f16(value, 0),
                    _ => small_float(value, bits - 5),
                }
            }
            // A conversion of NaN to an integer is 0.
            Number::Unorm => {
                let part = float.clamp(0.0, 1.0) * f64::from(most);
                return part.round_ties_even() as u32;
            }
            Number::Uscaled => return float.clamp(0.0, f64::from(most)) as u32,
            Number::Sint => (value as i32).clamp(low, high),
            Number::Snorm => {
                let part = float.clamp(-1.0, 1.0) * f64::from(high);
                part.round_ties_even() as i32
            }
            Number::Sscaled => float.clamp(f64::from(low), f64::from(high)) as i32,
        };
        signed as u32 & most
    }

    /// The components of an element; those that it has not are 0.
    pub(super) fn read(self, element: [u32; 4]) -> [u32; 4] {
        let mut components = [0; 4];
        let mut at = 0;
        for (component, bits) in components.iter_mut().zip(self.fields) {
            let word = element[at as usize / 32];
            *component = self.value(word >> (at % 32) & greatest(*bits), *bits);
            at += bits;
        }
        components
    }

    /// The element with these components.
    pub(super) fn write(self, components: [u32; 4]) -> [u32; 4] {
        let mut element = [0; 4];
        let mut at = 0;
        for (component, bits) in components.iter().zip(self.fields) {
            element[at as usize / 32] |= self.field(*component, *bits) << (at % 32);
            at += bits;
        }
        element
    }

    /// A value as a register's half has it.
    pub(super) fn narrow(self, value: u32) -> u32 {
        if self.is_float() {
            fp::f32_to_f16(value, 0)
        } else {
            value & 0xFFFF
        }
    }

    /// The value of a register's half.
    pub(super) fn widen(self, half: u32) -> u32 {
        match self.number {
            Number::Uint => half & 0xFFFF,
            Number::Sint => half as u16 as i16 as u32,
            _ => fp::f16_to_f32(half & 0xFFFF),
        }
    }
}
