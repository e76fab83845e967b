//! Brings libtorch: the PyTorch of a virtual environment in `.venv`, unless the user names a libtorch.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{pass_through, root};

/// The libtorch that the workspace's `tch` binds.
const VERSION: &str = "2.13.0";

/// What the scripts need beside PyTorch.
const REQUIREMENTS: &str = "scripts/requirements.txt";

/// Waits until no other `cargo xtask` is setting this working copy up. Held until dropped.
pub fn lock() -> Result<File> {
    let cache = root().join(".cache");
    let create =
        || fs::create_dir_all(&cache).and_then(|()| File::create(cache.join("xtask.lock")));
    let file = create().with_context(|| format!("cannot write {}", cache.display()))?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        println!("Another `cargo xtask` is setting up this working copy; waiting for it.");
        file.lock().context("cannot lock .cache/xtask.lock")?;
    }
    // A network file system may have no locks; working without one is better than not at all.
    Ok(file)
}

/// The LIBTORCH that the user set; `.cargo/config.toml` names `.venv/libtorch` where the user has set none.
pub fn own_libtorch() -> Option<PathBuf> {
    let folder = PathBuf::from(env::var_os("LIBTORCH")?);
    (folder != root().join(".venv/libtorch")).then_some(folder)
}

/// Makes sure that there are a C++ compiler and a libtorch of the right version.
pub fn libtorch() -> Result<()> {
    let compiler = Command::new("c++").arg("--version").output();
    if env::var_os("CXX").is_none() && !compiler.is_ok_and(|output| output.status.success()) {
        bail!(
            "there is no working C++ compiler `c++`, which the bindings to libtorch need. Install one (Debian and \
             Ubuntu: apt-get install g++; macOS: xcode-select --install), or name one in CXX."
        );
    }
    // torch-sys reads them in this order.
    if env::var_os("LIBTORCH_USE_PYTORCH").is_some() {
        return pytorch();
    }
    if let Some(folder) = own_libtorch() {
        return check(&folder);
    }
    python(false)?;
    link()
}

/// Checks the PyTorch of the user's Python.
fn pytorch() -> Result<()> {
    let python = if env::var_os("VIRTUAL_ENV").is_some() {
        "python"
    } else {
        "python3"
    };
    let mut command = Command::new(python);
    command.args(["-c", "import torch; print(torch.__version__)"]);
    let output = command.stderr(Stdio::inherit()).output();
    let found = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    check_version("the PyTorch that LIBTORCH_USE_PYTORCH asks for", found.ok())
}

/// Checks a folder that LIBTORCH names.
fn check(folder: &Path) -> Result<()> {
    let shown = format!("LIBTORCH={}", folder.display());
    let lib = env::var_os("LIBTORCH_LIB").map_or_else(|| folder.to_owned(), PathBuf::from);
    let names = ["libtorch.so", "libtorch.dylib", "libtorch.a", "torch.lib"];
    if !names.iter().any(|name| lib.join("lib").join(name).exists()) {
        bail!(
            "{shown} holds no libtorch: there is no `lib/libtorch.*` in it. MathNeuro needs libtorch {VERSION}. Set \
             LIBTORCH to the folder that has `lib` and `include` in it, or unset it: `cargo xtask setup` then installs \
             PyTorch {VERSION} in .venv."
        );
    }
    check_version(&shown, version(folder))
}

fn check_version(place: &str, found: Option<String>) -> Result<()> {
    let found = found.unwrap_or_default();
    println!("==> {place}: libtorch {found}");
    // After the `+` is the name of the build, such as `cu130`.
    let same = found.split('+').next() == Some(VERSION);
    if same || env::var_os("LIBTORCH_BYPASS_VERSION_CHECK").is_some() {
        return Ok(());
    }
    bail!(
        "{place} has version `{found}`, but MathNeuro needs libtorch {VERSION}. Point it at a libtorch {VERSION}, or \
         unset it: `cargo xtask setup` then installs PyTorch {VERSION} in .venv. (To try another version all the same, \
         set LIBTORCH_BYPASS_VERSION_CHECK=1.)"
    )
}

/// The version of an unpacked libtorch, or of a PyTorch package.
fn version(folder: &Path) -> Option<String> {
    if let Ok(text) = fs::read_to_string(folder.join("build-version")) {
        return Some(text.trim().to_owned());
    }
    let text = fs::read_to_string(folder.join("version.py")).ok()?;
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    Some(line.split(['\'', '"']).nth(1)?.to_owned())
}

/// Makes sure that `.venv` exists and has PyTorch and, if asked for, what the scripts need.
pub fn python(scripts: bool) -> Result<()> {
    let venv = root().join(".venv");
    let python = venv.join("bin/python");
    if !python.exists() {
        let base = env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        println!("==> {base} -m venv .venv");
        let is_new = !venv.exists();
        let made = pass_through(Command::new(&base).args(["-m", "venv"]).arg(&venv));
        if made.is_err() && is_new {
            // Half an environment would be taken for a whole one the next time.
            let _ = fs::remove_dir_all(&venv);
        }
        made.context(
            "Python 3.10 or newer with its venv module is needed (Debian and Ubuntu: apt-get install python3 \
             python3-venv); PYTHON names another one",
        )?;
    }
    let torch = format!("torch=={VERSION}");
    let requirements = fs::read_to_string(root().join(REQUIREMENTS))
        .with_context(|| format!("cannot read {REQUIREMENTS}"))?;
    install(&venv, "torch", &torch, &[&torch])?;
    if scripts {
        let list = ["-r", REQUIREMENTS, &torch];
        install(&venv, "scripts", &requirements, &list)?;
    }
    Ok(())
}

/// Runs `pip install`, unless a file in `.venv` says that the same was installed before.
fn install(venv: &Path, name: &str, wanted: &str, arguments: &[&str]) -> Result<()> {
    let stamp = venv.join(format!("installed-{name}.txt"));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("==> pip install {}", arguments.join(" "));
    // pip unpacks in the folder for temporary files, which on many machines is small or in memory.
    let scratch = venv.join("pip.tmp");
    fs::create_dir_all(&scratch).with_context(|| format!("cannot write {}", scratch.display()))?;
    let mut command = Command::new(venv.join("bin/python"));
    command
        .args(["-m", "pip", "install", "--no-input"])
        .args(["--disable-pip-version-check", "--progress-bar", "off"])
        .args(arguments)
        .current_dir(root())
        .env("TMPDIR", &scratch);
    let installed = pass_through(&mut command);
    let _ = fs::remove_dir_all(&scratch);
    installed.context(
        "pip failed. About 11 GB of disk are needed, 8 with PIP_NO_CACHE_DIR=1; a proxy is named in HTTPS_PROXY, an \
         index of your own in PIP_INDEX_URL. The same command continues with what was fetched. If .venv itself is \
         damaged, remove it first",
    )?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Makes `.venv/libtorch` point at the PyTorch there. The link is relative, so that the working copy may be moved.
fn link() -> Result<()> {
    let venv = root().join(".venv");
    let link = venv.join("libtorch");
    let pythons = fs::read_dir(venv.join("lib"))
        .into_iter()
        .flatten()
        .flatten();
    let torch = pythons
        .map(|python| {
            Path::new("lib")
                .join(python.file_name())
                .join("site-packages/torch")
        })
        .find(|torch| venv.join(torch).is_dir())
        .context(
            "there is no PyTorch in .venv. Remove that folder and run the same command again",
        )?;
    if fs::read_link(&link).ok().as_ref() != Some(&torch) {
        // Made beside and renamed, so that a build that is running never finds it missing.
        let new = link.with_extension("new");
        let _ = fs::remove_file(&new);
        symlink(&torch, &new)
            .and_then(|()| fs::rename(&new, &link))
            .with_context(|| format!("cannot make the link {}", link.display()))?;
    }
    check_version(".venv/libtorch", version(&link))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_libtorch_is_refused_with_what_to_set() {
        let error = check(Path::new("/no/such/libtorch")).unwrap_err();
        let version = check_version("LIBTORCH=/opt/t", Some("2.12.1+cpu".into())).unwrap_err();
        for (error, parts) in [
            (error, ["/no/such/libtorch", "MathNeuro", "unset it"]),
            (version, ["/opt/t", "2.12.1+cpu", "needs libtorch 2.13.0"]),
        ] {
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
        assert!(check_version("x", Some("2.13.0+cu130".into())).is_ok());
        assert!(check_version("x", Some("2.13.01".into())).is_err());
    }

    #[test]
    fn the_version_is_found_in_pytorchs_own_file() {
        let folder = env::temp_dir().join(format!("xtask-version-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let text =
            "__all__ = ['__version__', 'debug']\n__version__ = '2.13.0+cu130'\ndebug = False\n";
        fs::write(folder.join("version.py"), text).unwrap();
        assert_eq!(version(&folder).as_deref(), Some("2.13.0+cu130"));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(version(&folder), None);
    }

    #[test]
    fn the_libtorch_link_is_the_one_that_cargo_is_told_of() {
        let config = fs::read_to_string(root().join(".cargo/config.toml")).unwrap();
        assert!(config.contains("LIBTORCH = { value = \".venv/libtorch\", relative = true }"));
    }
}
