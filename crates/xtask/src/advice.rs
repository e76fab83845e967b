//! Turns what `pip` and `python3 -m venv` say when they fail into one message with the way out.

use crate::process;

/// The message for a failed `pip install` of `what`.
pub fn pip(what: &str, stderr: &str) -> String {
    let said = process::tail(stderr, 3);
    let has = |needles: &[&str]| needles.iter().any(|needle| stderr.contains(needle));
    let reason = if has(&["No space left on device", "Errno 28"]) {
        "The disk is full. Free some space and run the same command again."
    } else if has(&["CERTIFICATE_VERIFY_FAILED"]) {
        "The package index's certificate was not accepted. Behind a proxy that has its own, name it in PIP_CERT."
    } else if has(&[
        "NewConnectionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "NameResolutionError",
        "ProxyError",
        "Connection broken",
        "Connection aborted",
        "Connection reset",
        "Network is unreachable",
        "name resolution",
        "Max retries exceeded",
        "Read timed out",
    ]) {
        "The package index cannot be reached. Check the network connection (behind a proxy set HTTPS_PROXY, with \
         an index of your own PIP_INDEX_URL) and run the same command again; finished downloads are kept."
    } else if has(&["No module named pip"]) {
        "The environment has no pip, so it was left half made. Remove .venv and run the same command again."
    } else if has(&["DO NOT MATCH THE HASHES"]) {
        "A download arrived damaged. Run the same command again."
    } else if has(&["Permission denied", "Errno 13"]) {
        "A file may not be written. Was .venv made by another user? Remove it and run the same command again."
    } else if has(&["No matching distribution found", "Could not find a version"]) {
        "The package index has no such version for this machine and this Python. Use another Python (set PYTHON, \
         remove .venv), or set LIBTORCH to a libtorch of your own."
    } else {
        "Run the same command again; if it fails in the same way, remove .venv first."
    };
    format!("pip could not install {what}.\n{reason}\npip's last words:\n{said}")
}

/// The message for a failed `python3 -m venv`.
pub fn venv(python: &str, output: &str) -> String {
    let reason = if output.contains("ensurepip") || output.contains("No module named venv") {
        "Its `venv` module is incomplete. On Debian and Ubuntu: apt-get install python3-venv"
    } else if output.contains("No space left on device") {
        "The disk is full. Free some space and run the same command again."
    } else {
        "Is the folder writable? Set PYTHON to use another Python."
    };
    let said = process::tail(output, 3);
    format!(
        "`{python} -m venv` could not make the virtual environment .venv.\n{reason}\nIt said:\n{said}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // What pip 23 printed on machines in these states, shortened.
    const NO_NETWORK: &str = "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) \
        after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at \
        0x7f>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': \
        /simple/torch/\nERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: \
        none)\nERROR: No matching distribution found for torch==2.13.0\n";
    const NO_WHEEL: &str = "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from \
        versions: 1.0, 2.0)\nERROR: No matching distribution found for torch==2.13.0\n";
    const FULL: &str =
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n";
    const NO_ENSUREPIP: &str = "The virtual environment was not created successfully because ensurepip is not\n\
        available.  On Debian/Ubuntu systems, you need to install the python3-venv\npackage using the following \
        command.\n\n    apt install python3.11-venv\n";

    #[test]
    fn no_network_is_told_from_no_such_version() {
        let text = pip("torch==2.13.0", NO_NETWORK);
        assert!(text.contains("cannot be reached"), "{text}");
        let text = pip("torch==2.13.0", NO_WHEEL);
        assert!(text.contains("no such version for this machine"), "{text}");
    }

    #[test]
    fn a_full_disk_is_recognised() {
        assert!(pip("torch", FULL).contains("disk is full"));
        assert!(
            venv("python3", "OSError: [Errno 28] No space left on device").contains("disk is full")
        );
    }

    #[test]
    fn the_messages_carry_what_was_said() {
        assert!(pip("torch", "ERROR: something new\n").ends_with("ERROR: something new"));
        let text = venv("python3", NO_ENSUREPIP);
        assert!(text.contains("apt-get install python3-venv"), "{text}");
        assert!(text.contains("apt install python3.11-venv"), "{text}");
    }
}
