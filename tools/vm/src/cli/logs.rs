// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The folder of a run's logs.

use anyhow::Context;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

/// Runs whose logs are kept: several times what one `make test` boots, so that none of its own go.
const LOGS_KEPT: usize = 300;

/// Makes a directory for the logs of a run, drops those of the oldest, and points `last` at the new one.
pub(super) fn new_log_dir(out: &Path) -> anyhow::Result<PathBuf> {
    /// Tells apart what threads of one process make at the same time.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let all = out.join("logs/vm");
    fs::create_dir_all(&all).with_context(|| format!("making {}", all.display()))?;
    let mut old: Vec<PathBuf> = fs::read_dir(&all)?
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    old.sort();
    let surplus = old.len().saturating_sub(LOGS_KEPT - 1);
    for dir in old.iter().take(surplus) {
        // Another run may be deleting it, too.
        let _ = fs::remove_dir_all(dir);
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{}-{number}", now.as_millis(), std::process::id());
    let dir = all.join(&name);
    fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
    let link = all.join("last");
    let _ = fs::remove_file(&link);
    let _ = std::os::unix::fs::symlink(&name, &link);
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_logs_are_kept() {
        let out = tempfile::tempdir().unwrap();
        let mut last = PathBuf::new();
        for number in 0..LOGS_KEPT + 3 {
            fs::create_dir_all(out.path().join(format!("logs/vm/{number:04}"))).unwrap();
        }
        for _ in 0..2 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            last = new_log_dir(out.path()).unwrap();
        }
        let kept: Vec<String> = fs::read_dir(out.path().join("logs/vm"))
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        assert_eq!(kept.len(), LOGS_KEPT + 1, "{kept:?}");
        assert!(!kept.contains(&"0000".to_owned()));
        let link = fs::canonicalize(out.path().join("logs/vm/last")).unwrap();
        assert_eq!(link, fs::canonicalize(last).unwrap());
    }
}
