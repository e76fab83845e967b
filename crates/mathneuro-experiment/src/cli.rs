//! Settings from the command line: every field of a [`Spec`](crate::spec::Spec) is a flag, and `--config FILE.toml` gives those
//! that have no flag.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, Args, Command};
use serde::Serialize;
use serde_json::Value;

use crate::error::{Context, Result};
use crate::spec::check_keys;

const CONFIG: &str = "config";

/// Reads the settings of a program from its command line. With `--help` or bad flags it prints and ends the process, as
/// programs do.
///
/// `base` holds the program's own defaults: a file of `--config` goes before it, and a flag before both.
pub fn parse<T: Args + Serialize>(about: &'static str, base: &T) -> T {
    parse_from(about, base, std::env::args_os()).unwrap_or_else(|error| error.exit())
}

/// Reads the settings from these words, the first of which is the program's name.
///
/// # Errors
/// A flag or a value that is not known, a flag that is missing, or a file of `--config` that is refused.
pub fn parse_from<T: Args + Serialize>(
    about: &'static str,
    base: &T,
    words: impl IntoIterator<Item = OsString>,
) -> Result<T, clap::Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    let config = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE.toml")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Settings from this file, as every output folder holds one; flags override it");
    let command = Command::new("mathneuro")
        .about(about)
        .version(env!("CARGO_PKG_VERSION"));
    let command = T::augment_args(command).arg(config);
    let mut lenient = command.clone().mut_args(|arg| arg.required(false));
    let given = lenient.try_get_matches_from_mut(&words)?;

    let refused = |error: &dyn std::fmt::Display| command.clone().error(ErrorKind::Io, error);
    let mut settings = flags(serde_json::to_value(base).map_err(|error| refused(&error))?);
    if let Some(path) = given.get_one::<PathBuf>(CONFIG) {
        let known = command.get_arguments().map(|arg| arg.get_id().as_str());
        let known = known.filter(|id| *id != CONFIG);
        let file = read(path, known).map_err(|error| refused(&error))?;
        let file = flags(file);
        settings.retain(|(key, _)| file.iter().all(|(other, _)| key != other));
        settings.extend(file);
    }
    settings.retain(|(key, _)| given.value_source(key) != Some(ValueSource::CommandLine));
    let settings = settings.into_iter().map(|(_, flag)| flag);
    let mut all: Vec<OsString> = words.iter().take(1).cloned().collect();
    all.extend(settings.chain(words.into_iter().skip(1)));
    T::from_arg_matches(&command.try_get_matches_from(all)?)
}

/// The keys and values of a configuration file.
fn read<'k>(path: &Path, known: impl Iterator<Item = &'k str>) -> Result<Value> {
    let reading = || format!("--config {}", path.display());
    let text = std::fs::read_to_string(path).with_context(reading)?;
    let table: toml::Table = toml::from_str(&text).with_context(reading)?;
    check_keys(&table, known).with_context(reading)?;
    Ok(serde_json::to_value(table)?)
}

/// Settings as flags, by key; what is empty or off has none.
fn flags(settings: Value) -> Vec<(String, OsString)> {
    let Value::Object(settings) = settings else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (key, value) in settings {
        let values = match value {
            Value::Array(values) => values,
            one => vec![one],
        };
        for value in values {
            let flag = format!("--{}", key.replace('_', "-"));
            let flag = match value {
                Value::Null | Value::Bool(false) => continue,
                Value::Bool(true) => flag,
                Value::String(text) if text.is_empty() => continue,
                Value::String(text) => format!("{flag}={text}"),
                other => format!("{flag}={other}"),
            };
            all.push((key.clone(), flag.into()));
        }
    }
    all
}
