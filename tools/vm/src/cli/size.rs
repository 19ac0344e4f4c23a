// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Sizes of memory, as options have them.

/// Checks a size as QEMU takes it.
///
/// # Errors
/// What a size looks like.
pub(super) fn memory_size(text: &str) -> Result<String, String> {
    let digits = text.trim_end_matches(['M', 'G']);
    let valid = text.len() - digits.len() == 1 && digits.parse::<u32>().is_ok_and(|size| size > 0);
    if valid {
        Ok(text.to_owned())
    } else {
        Err("a size looks like 512M or 2G".into())
    }
}

/// A size as the options and the model take it, in MiB.
pub(super) fn mebibytes(text: &str) -> Option<u64> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    match unit {
        "" => Some(number >> 20),
        "K" => Some(number >> 10),
        "M" => Some(number),
        "G" => number.checked_mul(1024),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for good in ["512M", "2G"] {
            assert_eq!(memory_size(good).unwrap(), good);
        }
        for bad in ["", "G", "2", "0G", "2GG", "-1G", "2K", "1.5G", "2G,x=y"] {
            assert!(memory_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn all_units_of_a_model_come_to_mebibytes() {
        for (text, wanted) in [
            ("1073741824", Some(1024)),
            ("65536K", Some(64)),
            ("512M", Some(512)),
            ("2G", Some(2048)),
            ("2T", None),
            ("G", None),
            ("", None),
        ] {
            assert_eq!(mebibytes(text), wanted, "{text}");
        }
    }
}
