// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Texts with the conversions of `printf`.
//!
//! Each conversion takes a word: `d i u x X o c p` an integer (as an `int` unless `l`, `ll`, `z`, `j` or `t` says that it is
//! longer), `f F e E g G` the bits of a double, `s` the address of a text; `%` is `%%`. Flags are `- 0 + space #`; width and
//! precision may be `*`, which takes a word, too.

use std::iter::Peekable;

use super::reason;

/// Most characters of a width or precision.
const MOST: usize = 256;

/// A conversion.
#[derive(Debug, Default)]
struct Spec {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    long: bool,
}

/// The text, in which each conversion is what its argument says. `text_at` finds texts.
pub(super) fn format(
    text: &[u8],
    arguments: &[u64],
    text_at: impl Fn(u64) -> Result<Vec<u8>, u64>,
) -> Result<String, u64> {
    let mut words = arguments.iter().copied();
    let mut word = || words.next().ok_or(reason::FORMAT);
    let mut out: Vec<u8> = Vec::new();
    let mut rest = text.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut spec = Spec::default();
        while let Some(flag) = rest.next_if(|byte| b"-0+ #".contains(byte)) {
            match flag {
                b'-' => spec.left = true,
                b'0' => spec.zero = true,
                b'+' => spec.plus = true,
                b' ' => spec.space = true,
                _ => spec.alternate = true,
            }
        }
        let width = number(&mut rest, &mut word)?;
        spec.left |= width < 0;
        spec.width = bounded(width.unsigned_abs())?;
        if rest.next_if_eq(&b'.').is_some() {
            // A negative one is none.
            spec.precision = u64::try_from(number(&mut rest, &mut word)?)
                .ok()
                .map(bounded)
                .transpose()?;
        }
        while let Some(length) = rest.next_if(|byte| b"hlzjtL".contains(byte)) {
            spec.long |= length != b'h';
        }
        match rest.next() {
            Some(b'%') => out.push(b'%'),
            Some(kind) => spec.put(&mut out, kind, word()?, &text_at)?,
            None => return Err(reason::FORMAT),
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// A width or precision: digits, or `*`, which takes a word.
fn number(
    rest: &mut Peekable<impl Iterator<Item = u8>>,
    mut word: impl FnMut() -> Result<u64, u64>,
) -> Result<i64, u64> {
    if rest.next_if_eq(&b'*').is_some() {
        return Ok((word()? as i32).into()); // CAST: an `int` is the lower half.
    }
    let mut value: i64 = 0;
    while let Some(digit) = rest.next_if(u8::is_ascii_digit) {
        value = (value * 10 + i64::from(digit - b'0')).min(1 << 20);
    }
    Ok(value)
}

fn bounded(value: u64) -> Result<usize, u64> {
    usize::try_from(value)
        .ok()
        .filter(|value| *value <= MOST)
        .ok_or(reason::FORMAT)
}

impl Spec {
    fn put(
        &self,
        out: &mut Vec<u8>,
        kind: u8,
        word: u64,
        text_at: impl Fn(u64) -> Result<Vec<u8>, u64>,
    ) -> Result<(), u64> {
        // CAST: an `int` is the lower half.
        let unsigned = if self.long {
            word
        } else {
            u64::from(word as u32)
        };
        let signed = if self.long {
            word as i64
        } else {
            i64::from(word as i32)
        };
        match kind {
            b'd' | b'i' => self.integer(out, signed < 0, signed.unsigned_abs().to_string(), ""),
            b'u' => self.plain(out, unsigned.to_string(), ""),
            b'x' => self.plain(out, format!("{unsigned:x}"), "0x"),
            b'X' => self.plain(out, format!("{unsigned:X}"), "0X"),
            b'o' => self.plain(out, format!("{unsigned:o}"), "0"),
            b'p' => self.pad(out, b"0x", format!("{word:x}").as_bytes(), false),
            b'c' => self.pad(out, b"", &[word as u8], false), // CAST: a character is the lowest byte.
            b's' => {
                let mut text = text_at(word)?;
                text.truncate(self.precision.unwrap_or(text.len()));
                self.pad(out, b"", &text, false);
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' => self.float(out, kind, f64::from_bits(word)),
            _ => return Err(reason::FORMAT),
        }
        Ok(())
    }

    fn plain(&self, out: &mut Vec<u8>, digits: String, prefix: &str) {
        let prefix = if self.alternate && digits != "0" {
            prefix
        } else {
            ""
        };
        let unsigned = Self {
            plus: false,
            space: false,
            ..*self
        };
        unsigned.integer(out, false, digits, prefix);
    }

    fn integer(&self, out: &mut Vec<u8>, negative: bool, digits: String, prefix: &str) {
        let least = self.precision.unwrap_or(1);
        let digits = if least == 0 && digits == "0" {
            String::new()
        } else {
            format!("{digits:0>least$}")
        };
        let sign = format!("{}{prefix}", self.sign(negative));
        // A precision says how many digits there are.
        self.pad(
            out,
            sign.as_bytes(),
            digits.as_bytes(),
            self.precision.is_none(),
        );
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        }
    }

    fn float(&self, out: &mut Vec<u8>, kind: u8, value: f64) {
        let sign = self.sign(value.is_sign_negative());
        let size = value.abs();
        let places = self.precision.unwrap_or(6);
        let text = if !size.is_finite() {
            let text = if size.is_nan() { "nan" } else { "inf" };
            text.to_owned()
        } else {
            match kind.to_ascii_lowercase() {
                b'f' => format!("{size:.places$}"),
                b'e' => exponential(size, places),
                _ => self.general(size, places.max(1)),
            }
        };
        let text = if kind.is_ascii_uppercase() {
            text.to_ascii_uppercase()
        } else {
            text
        };
        self.pad(out, sign.as_bytes(), text.as_bytes(), size.is_finite());
    }

    /// `%g`: as many significant digits, without zeros at the end, by exponent where that is shorter.
    fn general(&self, size: f64, digits: usize) -> String {
        let by_exponent = exponential(size, digits - 1);
        let exponent: i32 = by_exponent
            .split_once('e')
            .and_then(|(_, exponent)| exponent.parse().ok())
            .unwrap_or(0);
        let most = i32::try_from(digits).unwrap_or(i32::MAX);
        let (mantissa, tail) = if exponent < -4 || exponent >= most {
            let (mantissa, exponent) = by_exponent.split_once('e').unwrap_or((&by_exponent, ""));
            (mantissa.to_owned(), format!("e{exponent}"))
        } else {
            let places = usize::try_from(most - 1 - exponent).unwrap_or(0);
            (format!("{size:.places$}"), String::new())
        };
        if self.alternate || !mantissa.contains('.') {
            return mantissa + &tail;
        }
        mantissa
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
            + &tail
    }

    fn pad(&self, out: &mut Vec<u8>, prefix: &[u8], text: &[u8], zeros: bool) {
        let blank = self.width.saturating_sub(prefix.len() + text.len());
        let zeros = zeros && self.zero && !self.left;
        let fill = |out: &mut Vec<u8>, with: u8| out.extend(std::iter::repeat_n(with, blank));
        if !self.left && !zeros {
            fill(out, b' ');
        }
        out.extend(prefix);
        if zeros {
            fill(out, b'0');
        }
        out.extend(text);
        if self.left {
            fill(out, b' ');
        }
    }
}

/// A number as C writes it by exponent, which has two digits at least.
fn exponential(size: f64, places: usize) -> String {
    let text = format!("{size:.places$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::CString;

    fn none(_: u64) -> Result<Vec<u8>, u64> {
        Err(reason::ADDRESS)
    }

    fn ours(text: &str, arguments: &[u64]) -> String {
        format(text.as_bytes(), arguments, none).unwrap()
    }

    /// What the C library makes of it.
    fn theirs(text: &str, argument: u64, double: bool) -> String {
        let text = CString::new(text).unwrap();
        let mut out = vec![0u8; 2048];
        let at = out.as_mut_ptr().cast();
        // SAFETY: the buffer has as many bytes, and the text one conversion for an argument of that type.
        let len = unsafe {
            if double {
                nix::libc::snprintf(at, 2048, text.as_ptr(), f64::from_bits(argument))
            } else {
                nix::libc::snprintf(at, 2048, text.as_ptr(), argument)
            }
        };
        String::from_utf8_lossy(&out[..len as usize]).into_owned()
    }

    proptest! {
        #[test]
        fn integers_are_as_in_c(
            flags in "[-0+ #]{0,2}",
            width in 0usize..20,
            precision in prop::option::of(0usize..15),
            kind in prop::sample::select(vec!["d", "i", "u", "x", "X", "ld", "lu", "lx", "lld", "zu"]),
            value in prop_oneof![any::<u64>(), 0u64..3, Just(u64::MAX)],
        ) {
            let width = if width == 0 { String::new() } else { width.to_string() };
            let precision = precision.map_or(String::new(), |n| format!(".{n}"));
            let text = format!("<%{flags}{width}{precision}{kind}>");
            prop_assert_eq!(ours(&text, &[value]), theirs(&text, value, false), "{}", text);
        }

        #[test]
        fn floats_are_as_in_c(
            flags in "[-0+ ]{0,2}",
            width in 0usize..20,
            precision in prop::option::of(0usize..12),
            kind in prop::sample::select(vec!["f", "e", "g", "E", "G"]),
            value in prop_oneof![-1e6..1e6f64, any::<f64>().prop_filter("C says -nan", |v| !v.is_nan()), Just(0.0), Just(100000.0), Just(1e-5)],
        ) {
            let width = if width == 0 { String::new() } else { width.to_string() };
            let precision = precision.map_or(String::new(), |n| format!(".{n}"));
            let text = format!("<%{flags}{width}{precision}{kind}>");
            prop_assert_eq!(ours(&text, &[value.to_bits()]), theirs(&text, value.to_bits(), true), "{}", text);
        }

        #[test]
        fn any_text_is_bearable(text in prop::collection::vec(any::<u8>(), 0..60), words in prop::collection::vec(any::<u64>(), 0..6)) {
            let _ = format(&text, &words, none);
        }
    }

    #[test]
    fn texts_are_found() {
        let at = |address: u64| match address {
            7 => Ok(b"seven".to_vec()),
            _ => Err(reason::ADDRESS),
        };
        let text = |format_text: &str, words: &[u64]| format(format_text.as_bytes(), words, at);
        assert_eq!(
            text("%s|%-7s|%.2s|%%|%c", &[7, 7, 7, 65]).unwrap(),
            "seven|seven  |se|%|A"
        );
        assert_eq!(
            text("%*d|%-*d|%.*f", &[5, 1, 3, 2, 1, 2.25f64.to_bits()]).unwrap(),
            "    1|2  |2.2"
        );
        assert_eq!(text("%s", &[8]), Err(reason::ADDRESS));
        assert_eq!(text("%d", &[]), Err(reason::FORMAT));
        assert_eq!(text("%", &[1]), Err(reason::FORMAT));
        assert_eq!(text("%q", &[1]), Err(reason::FORMAT));
        assert_eq!(text("%999d", &[1]), Err(reason::FORMAT));
    }
}
