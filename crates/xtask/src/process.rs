//! Starting other programs, and what is said when they fail.

use std::env;
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// Runs a command whose standard output the user sees as it comes; its standard error is returned.
///
/// Errors when it cannot be started; a failure of the program itself is in the status returned.
pub fn keep_stderr(command: &mut Command) -> Result<(ExitStatus, String)> {
    let shown = program(command);
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let mut kept = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr
            .read_to_end(&mut kept)
            .with_context(|| format!("cannot read what `{shown}` says"))?;
    }
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for `{shown}`"))?;
    Ok((status, String::from_utf8_lossy(&kept).into_owned()))
}

/// Runs a command that talks to the user by itself.
///
/// Errors when it cannot be started; a failure of the program itself is in the status returned.
pub fn pass_through(command: &mut Command) -> Result<ExitStatus> {
    let shown = program(command);
    command
        .status()
        .with_context(|| format!("cannot start `{shown}`"))
}

/// Runs a command quietly; standard output and standard error, one after the other, with the status.
pub fn capture(command: &mut Command) -> std::io::Result<(ExitStatus, String)> {
    let output = command.stdin(Stdio::null()).output()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok((output.status, text))
}

/// The last `count` lines that are not empty.
pub fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Whether a program died of signal 9, which the kernel sends when memory runs out.
pub fn was_killed(status: ExitStatus) -> bool {
    #[cfg(unix)]
    {
        std::os::unix::process::ExitStatusExt::signal(&status) == Some(9)
    }
    #[cfg(not(unix))]
    {
        let _ = status;
        false
    }
}

/// A `cargo` that sees the environment a user's own `cargo` would see.
///
/// `cargo run`, which started this program, has added variables of its own. LIBTORCH is the one that matters:
/// were it passed on, torch-sys would be compiled again whenever `cargo xtask` and plain `cargo` alternate.
pub fn cargo(root: &Path, default_libtorch: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    for (name, value) in env::vars_os() {
        let added = name.to_str().is_some_and(is_added_by_cargo_run);
        if added || (name == "LIBTORCH" && Path::new(&value) == default_libtorch) {
            command.env_remove(name);
        }
    }
    command
}

fn is_added_by_cargo_run(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

fn program(command: &Command) -> String {
    Path::new(command.get_program()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_skips_empty_lines_and_takes_short_texts_whole() {
        assert_eq!(tail("a\n\nb\n  \nc\n", 2), "b\nc");
        assert_eq!(tail("a", 3), "a");
        assert_eq!(tail("", 3), "");
    }

    #[test]
    fn what_cargo_run_adds_is_not_passed_on() {
        assert!(is_added_by_cargo_run("CARGO_PKG_NAME"));
        assert!(is_added_by_cargo_run("CARGO_MANIFEST_DIR"));
        assert!(!is_added_by_cargo_run("CARGO_TARGET_DIR"));
        assert!(!is_added_by_cargo_run("CARGO_HOME"));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = keep_stderr(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }
}
