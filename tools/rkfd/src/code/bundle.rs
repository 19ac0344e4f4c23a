// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Bundles of code objects for several targets, as `clang -x hip` and `hipcc --genco` make them.
//!
//! Layout: "Bundled Code Object File Layout" of `ClangOffloadBundler`.

use super::error::CodeError;
use super::error::Result;
use super::target::Target;

const MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
/// More entries than any compiler makes.
const MOST: u64 = 4096;

fn wrong(what: &str) -> CodeError {
    CodeError::Elf(format!("a bundle {what}"))
}

/// Splits `count` bytes off.
fn take<'a>(bytes: &mut &'a [u8], count: u64) -> Result<&'a [u8]> {
    let count = usize::try_from(count).map_err(|_| wrong("that is cut off"))?;
    let (head, rest) = bytes
        .split_at_checked(count)
        .ok_or_else(|| wrong("that is cut off"))?;
    *bytes = rest;
    Ok(head)
}

fn word(bytes: &mut &[u8]) -> Result<u64> {
    let mut raw = [0; 8];
    raw.copy_from_slice(take(bytes, 8)?);
    Ok(u64::from_le_bytes(raw))
}

/// The code object for `gpu`: of a bundle the first that runs there, otherwise all of `bytes`.
///
/// # Errors
/// [`CodeError::NotInBundle`]; [`CodeError::Elf`] for a bundle that is not whole.
pub fn code_for<'a>(bytes: &'a [u8], gpu: &Target) -> Result<&'a [u8]> {
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        return Ok(bytes);
    };
    let count = word(&mut rest)?;
    if count > MOST {
        return Err(wrong("of too many code objects"));
    }
    let mut found = Vec::new();
    for _ in 0..count {
        let (offset, size, length) = (word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
        let id = String::from_utf8_lossy(take(&mut rest, length)?);
        // As hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-.
        let target = id
            .rsplit_once("--")
            .and_then(|(_, name)| Target::from_name(name));
        if target.is_some_and(|target| target.runs_on(gpu)) {
            let mut from = bytes;
            take(&mut from, offset)?;
            return take(&mut from, size);
        }
        found.push(id.into_owned());
    }
    Err(CodeError::NotInBundle {
        gpu: *gpu,
        found: found.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bundle(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut head = MAGIC.to_vec();
        head.extend((entries.len() as u64).to_le_bytes());
        let table: usize = entries.iter().map(|(id, _)| 24 + id.len()).sum();
        let mut offset = head.len() + table;
        let mut body: Vec<u8> = Vec::new();
        for (id, code) in entries {
            for value in [offset, code.len(), id.len()] {
                head.extend((value as u64).to_le_bytes());
            }
            head.extend(id.as_bytes());
            body.extend(*code);
            offset += code.len();
        }
        head.extend(body);
        head
    }

    fn gpu(name: &str) -> Target {
        Target::from_name(name).unwrap()
    }

    fn sample() -> Vec<u8> {
        bundle(&[
            ("host-x86_64-unknown-linux--", b""),
            ("hipv4-amdgcn-amd-amdhsa--gfx906", b"old"),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", b"new"),
        ])
    }

    #[test]
    fn the_code_for_a_gpu_is_found() {
        let bytes = sample();
        assert_eq!(code_for(&bytes, &gpu("gfx906")).unwrap(), b"old");
        assert_eq!(code_for(&bytes, &gpu("gfx90a")).unwrap(), b"new");
        let error = code_for(&bytes, &gpu("gfx942")).unwrap_err().to_string();
        assert!(
            error.contains("gfx942") && error.contains("gfx906"),
            "{error}"
        );
        assert_eq!(code_for(b"\x7fELF", &gpu("gfx906")).unwrap(), b"\x7fELF");
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let bytes = sample();
        for length in MAGIC.len()..bytes.len() {
            assert!(
                code_for(&bytes[..length], &gpu("gfx90a")).is_err(),
                "{length}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bundle_is_read_or_refused(rest in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = code_for(&[MAGIC, &rest].concat(), &gpu("gfx90a"));
        }
    }
}
