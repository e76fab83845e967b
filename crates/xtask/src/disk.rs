//! Room on the disk, asked for before gigabytes are fetched.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::process;

/// One gigabyte, as disks are sold.
pub const GB: u64 = 1_000_000_000;

/// Errors when the file system of `path` certainly has less than `needed` bytes left.
///
/// `what` says what the room is for, `way_out` what else can be done than to free some. Where `df` gives no
/// usable answer this passes: a later "no space left" is reported as well.
pub fn require(path: &Path, needed: u64, what: &str, way_out: &str) -> Result<()> {
    match free(path) {
        Some(free) if free < needed => bail!(
            "{what} needs {:.1} GB, but the file system of {} has {:.1} GB left. Free some space{way_out} and \
             run the same command again.",
            needed as f64 / GB as f64,
            path.display(),
            free as f64 / GB as f64,
        ),
        _ => Ok(()),
    }
}

fn free(path: &Path) -> Option<u64> {
    // The path itself may not exist yet.
    let existing = path.ancestors().find(|path| path.exists())?;
    let mut command = Command::new("df");
    command.arg("-Pk").arg(existing).env("LC_ALL", "C");
    let (status, text) = process::capture(&mut command).ok()?;
    status.success().then(|| parse_df(&text)).flatten()
}

/// Bytes available, from the POSIX format of `df -Pk`.
fn parse_df(text: &str) -> Option<u64> {
    // Names of devices and folders may contain blanks, so fields are counted from the one in percent.
    let fields: Vec<&str> = text.lines().nth(1)?.split_whitespace().collect();
    let percent = fields.iter().position(|field| {
        field
            .strip_suffix('%')
            .is_some_and(|number| number.parse::<u64>().is_ok())
    })?;
    let kilobytes: u64 = fields.get(percent.checked_sub(1)?)?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n";

    #[test]
    fn df_is_read_also_with_blanks_in_names() {
        let plain = format!("{HEAD}/dev/vda          263174212 18912345  76123456      20% /\n");
        assert_eq!(parse_df(&plain), Some(76_123_456 * 1024));
        let blanks = format!("{HEAD}//host/my share   1000 900  100      90% /mnt/my share\n");
        assert_eq!(parse_df(&blanks), Some(100 * 1024));
    }

    #[test]
    fn what_is_not_from_df_is_not_guessed_at() {
        assert_eq!(parse_df(""), None);
        assert_eq!(parse_df("df: no such file\n"), None);
        assert_eq!(parse_df(&format!("{HEAD}none - - - - /\n")), None);
        assert_eq!(parse_df(&format!("{HEAD}20% /\n")), None);
    }

    #[test]
    fn too_little_room_names_the_need_and_the_way_out() {
        let error = require(Path::new("/"), u64::MAX, "PyTorch", ", or say please,").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("PyTorch needs"), "{text}");
        assert!(
            text.contains("Free some space, or say please, and"),
            "{text}"
        );
        assert!(require(Path::new("/no/such/folder"), 0, "nothing", "").is_ok());
    }
}
