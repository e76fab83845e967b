//! The virtual environment in `.venv` and the packages in it.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::advice;
use crate::disk::{self, GB};
use crate::layout::Layout;
use crate::libtorch::{self, is_version};
use crate::process;

/// What the scripts need beside PyTorch.
const REQUIREMENTS: &str = include_str!("../../../scripts/requirements.txt");

/// The oldest Python that this PyTorch exists for.
const OLDEST: (u32, u32) = (3, 10);

/// One package at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    name: String,
    version: String,
}

impl Requirement {
    /// PyTorch, in the version that `tch` binds.
    pub fn torch() -> Self {
        Self {
            name: "torch".into(),
            version: libtorch::VERSION.into(),
        }
    }

    /// What the scripts need, PyTorch included.
    pub fn for_scripts() -> Vec<Self> {
        std::iter::once(Self::torch())
            .chain(Self::parse_list(REQUIREMENTS))
            .collect()
    }

    /// The lines `name==version` of a requirements file; comments and empty lines are passed over.
    fn parse_list(text: &str) -> impl Iterator<Item = Self> {
        text.lines().filter_map(|line| {
            let (name, version) = line.split('#').next()?.trim().split_once("==")?;
            Some(Self {
                name: name.trim().into(),
                version: version.trim().into(),
            })
        })
    }

    fn spell(&self) -> String {
        format!("{}=={}", self.name, self.version)
    }
}

/// Makes sure that `.venv` exists and has a Python that works.
pub fn ensure_venv(layout: &Layout) -> Result<String> {
    let python = layout.venv_python();
    if python.symlink_metadata().is_ok() {
        return match version_of(&python) {
            Some(version) => Ok(format!("found, Python {}.{}", version.0, version.1)),
            None => bail!(
                "{} does not start; was the Python it belongs to removed? Remove the folder {} and run the same \
                 command again.",
                python.display(),
                layout.venv().display()
            ),
        };
    }
    make_venv(layout)
}

fn make_venv(layout: &Layout) -> Result<String> {
    let base = env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let Some(version) = version_of(Path::new(&base)) else {
        bail!(
            "there is no working `{base}`. Install Python {}.{} or newer with its venv module (Debian and Ubuntu: \
             apt-get install python3 python3-venv), or name one in PYTHON.",
            OLDEST.0,
            OLDEST.1
        );
    };
    if version < OLDEST {
        bail!(
            "`{base}` is Python {}.{}, but PyTorch {} needs {}.{} or newer. Name a newer one in PYTHON.",
            version.0,
            version.1,
            libtorch::VERSION,
            OLDEST.0,
            OLDEST.1
        );
    }
    let fresh = !layout.venv().exists();
    let mut command = Command::new(&base);
    command.args(["-m", "venv"]).arg(layout.venv());
    let (status, output) =
        process::capture(&mut command).with_context(|| format!("cannot start `{base}`"))?;
    if !status.success() {
        if fresh {
            // Half an environment would be taken for a whole one the next time.
            let _ = fs::remove_dir_all(layout.venv());
        }
        bail!(advice::venv(&base, &output));
    }
    Ok(format!("made with Python {}.{}", version.0, version.1))
}

fn version_of(python: &Path) -> Option<(u32, u32)> {
    let mut command = Command::new(python);
    command.args(["-c", "import sys; print(*sys.version_info[:2])"]);
    let (status, text) = process::capture(&mut command).ok()?;
    status.success().then(|| parse_version(&text)).flatten()
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(' ')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Makes sure that the packages are in `.venv`, in exactly these versions.
pub fn ensure_packages(layout: &Layout, wanted: &[Requirement]) -> Result<String> {
    let installed = installed(&site_packages(layout)?);
    let missing = missing(wanted, &installed);
    let names = |list: &[&Requirement]| {
        list.iter()
            .map(|package| package.spell())
            .collect::<Vec<_>>()
            .join(" ")
    };
    if missing.is_empty() {
        return Ok(format!(
            "found: {}",
            names(&wanted.iter().collect::<Vec<_>>())
        ));
    }
    let what = names(&missing);
    require_room(layout, &missing)?;
    println!("    installing {what}");
    install(layout, &missing, &what)?;
    Ok(format!("installed {what}"))
}

fn require_room(layout: &Layout, missing: &[&Requirement]) -> Result<()> {
    if !missing.iter().any(|package| package.name == "torch") {
        return disk::require(&layout.venv(), GB, "installing the Python packages", "");
    }
    // Measured on Linux: 5 GB installed, 2.7 GB of wheels, and pip's cache keeps a copy of those.
    let large = cfg!(target_os = "linux");
    let (needed, cached) = if large {
        (8 * GB, 3 * GB)
    } else {
        (2 * GB, GB / 2)
    };
    if env::var_os("PIP_NO_CACHE_DIR").is_some() {
        disk::require(&layout.venv(), needed, "installing PyTorch", "")
    } else {
        let way_out = ", or set PIP_NO_CACHE_DIR=1 to keep no copy of the downloads,";
        disk::require(
            &layout.venv(),
            needed + cached,
            "installing PyTorch",
            way_out,
        )
    }
}

fn install(layout: &Layout, packages: &[&Requirement], what: &str) -> Result<()> {
    // pip unpacks in the folder for temporary files, which on many machines is small or in memory.
    let scratch = layout.venv().join("pip.tmp");
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let mut command = Command::new(layout.venv_python());
    command
        .args([
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--no-input",
        ])
        .args(["--retries", "2"])
        .args(packages.iter().map(|package| package.spell()))
        .env("TMPDIR", &scratch)
        .env("PYTHONUNBUFFERED", "1");
    let result = process::keep_stderr(&mut command);
    let _ = fs::remove_dir_all(&scratch);
    let (status, stderr) = result?;
    if !status.success() {
        bail!(advice::pip(what, &stderr));
    }
    Ok(())
}

/// `.venv/lib/python3.N/site-packages`
pub fn site_packages(layout: &Layout) -> Result<PathBuf> {
    let python = layout.venv_python();
    let (major, minor) =
        version_of(&python).with_context(|| format!("{} does not start", python.display()))?;
    Ok(layout
        .venv()
        .join(format!("lib/python{major}.{minor}/site-packages")))
}

/// Name and version of the packages in a `site-packages` folder, from the names of its folders. Starting
/// Python to ask would take a second each time.
fn installed(site_packages: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(site_packages).into_iter().flatten().flatten() {
        // pip writes INSTALLER after everything else: without it, the installation was interrupted.
        if entry.path().join("INSTALLER").is_file()
            && let Some((name, version)) = entry.file_name().to_str().and_then(dist_info)
        {
            found.insert(name, version);
        }
    }
    found
}

/// `Name-1.2.dist-info` as the normalised name and the version.
fn dist_info(folder: &str) -> Option<(String, String)> {
    let (name, version) = folder.strip_suffix(".dist-info")?.rsplit_once('-')?;
    Some((normalise(name), version.to_owned()))
}

fn normalise(name: &str) -> String {
    name.to_ascii_lowercase().replace(['-', '.'], "_")
}

fn missing<'a>(
    wanted: &'a [Requirement],
    installed: &BTreeMap<String, String>,
) -> Vec<&'a Requirement> {
    wanted
        .iter()
        .filter(|package| {
            let version = installed.get(&normalise(&package.name));
            !version.is_some_and(|version| is_version(version, &package.version))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements(text: &str) -> Vec<Requirement> {
        Requirement::parse_list(text).collect()
    }

    #[test]
    fn a_requirements_file_is_read_without_its_comments() {
        let list = requirements("# head\n\ntorch==2.13.0\n  gguf == 0.19.0  # why\n");
        let spelled: Vec<String> = list.iter().map(Requirement::spell).collect();
        assert_eq!(spelled, ["torch==2.13.0", "gguf==0.19.0"]);
    }

    #[test]
    fn every_line_of_our_requirements_file_is_pinned() {
        let lines = REQUIREMENTS
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count();
        assert_eq!(Requirement::for_scripts().len(), lines + 1);
        assert!(lines > 0);
    }

    #[test]
    fn installed_packages_are_read_from_folder_names() {
        assert_eq!(
            dist_info("torch-2.13.0+cpu.dist-info"),
            Some(("torch".into(), "2.13.0+cpu".into()))
        );
        assert_eq!(
            dist_info("Jinja2-3.1.6.dist-info"),
            Some(("jinja2".into(), "3.1.6".into()))
        );
        assert_eq!(dist_info("torch"), None);
        assert_eq!(dist_info("torch.dist-info"), None);
        assert_eq!(
            normalise("typing-extensions"),
            normalise("Typing.Extensions")
        );
    }

    #[test]
    fn a_package_of_another_version_counts_as_missing() {
        let wanted = requirements("torch==2.13.0\ngguf==0.19.0\naccelerate==1.15.0\n");
        let found = [("torch", "2.12.0+cu128"), ("gguf", "0.19.0")];
        let found = found
            .map(|(name, version)| (name.to_owned(), version.to_owned()))
            .into();
        let missing: Vec<String> = missing(&wanted, &found)
            .into_iter()
            .map(Requirement::spell)
            .collect();
        assert_eq!(missing, ["torch==2.13.0", "accelerate==1.15.0"]);
    }

    #[test]
    fn python_versions_compare_as_numbers() {
        assert_eq!(parse_version("3 11\n"), Some((3, 11)));
        assert_eq!(parse_version("python"), None);
        assert!(parse_version("3 9") < Some(OLDEST));
    }

    #[test]
    fn an_empty_or_missing_folder_has_no_packages() {
        assert!(installed(Path::new("/no/such/folder")).is_empty());
    }
}
