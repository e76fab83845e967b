//! Which libtorch the workspace is built with, and whether it is the right one.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::layout::Layout;
use crate::process;

/// The version that the workspace's `tch` is made for.
pub const VERSION: &str = "2.13.0";

/// Where libtorch comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The PyTorch in `.venv`, which this program installs.
    Venv,
    /// The folder that the user named in LIBTORCH.
    Folder(PathBuf),
    /// The PyTorch of the user's own Python, because LIBTORCH_USE_PYTORCH is set.
    Pytorch,
}

impl Source {
    /// Reads the environment the way torch-sys does: LIBTORCH_USE_PYTORCH wins, whatever its value.
    pub fn from_env(layout: &Layout) -> Self {
        let var = |name| env::var_os(name);
        Self::choose(
            var("LIBTORCH_USE_PYTORCH"),
            var("LIBTORCH"),
            &layout.libtorch_link(),
        )
    }

    fn choose(pytorch: Option<OsString>, folder: Option<OsString>, default: &Path) -> Self {
        match (pytorch, folder) {
            (Some(_), _) => Self::Pytorch,
            // `.cargo/config.toml` sets LIBTORCH to the default where the user has set none.
            (None, Some(folder)) if Path::new(&folder) != default => Self::Folder(folder.into()),
            _ => Self::Venv,
        }
    }
}

/// Checks a libtorch that the user brought; returns a description of it.
pub fn check_own(source: &Source) -> Result<String> {
    let (place, version) = match source {
        Source::Venv => bail!("no libtorch of your own is named"),
        Source::Folder(folder) => (
            format!("LIBTORCH={}", folder.display()),
            folder_version(folder)?,
        ),
        Source::Pytorch => (
            "the PyTorch that LIBTORCH_USE_PYTORCH asks for".to_owned(),
            Some(pytorch_version()?),
        ),
    };
    let Some(version) = version else {
        return Ok(format!(
            "{place}, whose version is not written anywhere; {VERSION} is needed"
        ));
    };
    if env::var_os("LIBTORCH_BYPASS_VERSION_CHECK").is_none() {
        check_version(&place, &version)?;
    }
    Ok(format!("{place}, version {version}"))
}

fn check_version(place: &str, found: &str) -> Result<()> {
    if is_version(found, VERSION) {
        return Ok(());
    }
    bail!(
        "{place} is version {found}, but {VERSION} is needed. Point it at a libtorch {VERSION}, or unset it: \
         `cargo xtask setup` then installs PyTorch {VERSION} in .venv. (To try another version all the same, \
         set LIBTORCH_BYPASS_VERSION_CHECK=1.)"
    )
}

/// Checks the PyTorch in `.venv`, which the link leads to; returns a description of it.
pub fn check_venv(layout: &Layout) -> Result<String> {
    let link = layout.libtorch_link();
    match folder_version(&link) {
        Ok(Some(version)) if is_version(&version, VERSION) => {
            Ok(format!("PyTorch {version} by way of {}", link.display()))
        }
        _ => bail!(
            "the PyTorch in {} is not whole. Remove that folder and run the same command again.",
            layout.venv().display()
        ),
    }
}

/// Whether `found`, such as `2.13.0+cu130`, is `wanted` apart from the build's label.
pub fn is_version(found: &str, wanted: &str) -> bool {
    found.trim().split('+').next() == Some(wanted)
}

/// The version of an unpacked libtorch or of a PyTorch package; `None` when it is not written there.
fn folder_version(folder: &Path) -> Result<Option<String>> {
    let lib = env::var_os("LIBTORCH_LIB")
        .map_or_else(|| folder.to_owned(), PathBuf::from)
        .join("lib");
    let names = ["libtorch.so", "libtorch.dylib", "libtorch.a", "torch.lib"];
    if !names.iter().any(|name| lib.join(name).exists()) {
        bail!(
            "LIBTORCH={} holds no libtorch: there is no library `torch` in {}. Set LIBTORCH to the folder that has \
             `lib` and `include` in it, or unset it: `cargo xtask setup` then installs PyTorch {VERSION} in .venv.",
            folder.display(),
            lib.display(),
        );
    }
    if let Ok(text) = fs::read_to_string(folder.join("build-version")) {
        return Ok(Some(text.trim().to_owned()));
    }
    let text = fs::read_to_string(folder.join("version.py")).unwrap_or_default();
    Ok(version_py(&text).map(str::to_owned))
}

/// The version in a PyTorch package's `version.py`.
fn version_py(text: &str) -> Option<&str> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("__version__"))?;
    let value = value.trim_start().strip_prefix('=')?.trim();
    let value = value.trim_matches(['\'', '"']);
    (!value.is_empty()).then_some(value)
}

fn pytorch_version() -> Result<String> {
    // The interpreter that torch-sys will ask.
    let python = if env::var_os("VIRTUAL_ENV").is_some() {
        "python"
    } else {
        "python3"
    };
    let mut command = Command::new(python);
    command.args(["-c", "import torch; print(torch.__version__)"]);
    let answer = process::capture(&mut command)
        .with_context(|| format!("LIBTORCH_USE_PYTORCH is set, but `{python}` does not start"))?;
    let (status, text) = answer;
    if !status.success() {
        bail!(
            "LIBTORCH_USE_PYTORCH is set, but `{python}` cannot import torch. Install torch=={VERSION} for it, or \
             unset the variable: `cargo xtask setup` then installs PyTorch in .venv. It said:\n{}",
            process::tail(&text, 1)
        );
    }
    Ok(process::tail(&text, 1))
}

/// Makes `.venv/libtorch` point at the PyTorch in `site_packages`; the link is relative, so the working copy
/// may be moved. Returns whether anything had to be done.
pub fn link(layout: &Layout, site_packages: &Path) -> Result<bool> {
    let link = layout.libtorch_link();
    let target = site_packages.join("torch");
    let target = target.strip_prefix(layout.venv()).unwrap_or(&target);
    if fs::read_link(&link).is_ok_and(|present| present == target) {
        return Ok(false);
    }
    if link.symlink_metadata().is_ok_and(|data| !data.is_symlink()) {
        bail!(
            "{} is in the way of a link of that name. Move it away.",
            link.display()
        );
    }
    // Made beside and renamed, so that a build going on meanwhile never finds it missing.
    let new = link.with_extension("new");
    let _ = fs::remove_file(&new);
    symlink(target, &new)
        .and_then(|()| fs::rename(&new, &link))
        .with_context(|| format!("cannot make the link {}", link.display()))?;
    Ok(true)
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(std::io::Error::other(
        "on this system, set LIBTORCH to a libtorch of your own",
    ))
}

/// Errors unless a C++ compiler is there: torch-sys compiles its glue to libtorch.
pub fn check_compiler() -> Result<String> {
    if env::vars_os().any(|(name, _)| name.to_str().is_some_and(|name| name.starts_with("CXX"))) {
        return Ok("the one that CXX names".into());
    }
    match process::capture(Command::new("c++").arg("--version")) {
        Ok((status, text)) if status.success() => {
            Ok(text.lines().next().unwrap_or("c++").to_owned())
        }
        _ => bail!(
            "there is no working C++ compiler `c++`, which the bindings to libtorch need. Install one (Debian and \
             Ubuntu: apt-get install g++; macOS: xcode-select --install), or name one in CXX."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(text: &str) -> Option<OsString> {
        Some(text.into())
    }

    #[test]
    fn a_libtorch_of_the_users_own_wins_over_the_default() {
        let default = Path::new("/w/.venv/libtorch");
        assert_eq!(Source::choose(None, None, default), Source::Venv);
        assert_eq!(
            Source::choose(None, os("/w/.venv/libtorch"), default),
            Source::Venv
        );
        assert_eq!(
            Source::choose(None, os("/opt/libtorch"), default),
            Source::Folder("/opt/libtorch".into())
        );
        assert_eq!(
            Source::choose(os("1"), os("/opt/libtorch"), default),
            Source::Pytorch
        );
    }

    #[test]
    fn the_builds_label_is_no_part_of_the_version() {
        assert!(is_version("2.13.0", "2.13.0"));
        assert!(is_version("2.13.0+cu130\n", "2.13.0"));
        assert!(!is_version("2.13.01", "2.13.0"));
        assert!(!is_version("2.1", "2.13.0"));
        let error = check_version("LIBTORCH=/opt/t", "2.12.1+cpu")
            .unwrap_err()
            .to_string();
        for part in ["/opt/t", "2.12.1+cpu", "2.13.0", "unset"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_version_is_found_in_pytorchs_own_file() {
        let text = "from typing import Optional\n\n__all__ = ['__version__', 'debug']\n\
            __version__ = '2.13.0+cu130'\ndebug = False\n";
        assert_eq!(version_py(text), Some("2.13.0+cu130"));
        assert_eq!(version_py("debug = False\n"), None);
        assert_eq!(version_py("__version__\n"), None);
    }

    #[test]
    fn a_folder_without_libtorch_is_refused_with_the_way_out() {
        let error = check_own(&Source::Folder("/no/such/libtorch".into()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/no/such/libtorch"), "{error}");
        assert!(error.contains("unset it"), "{error}");
    }
}
