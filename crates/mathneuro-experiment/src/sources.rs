//! Arguments that name a model or a data set on the hub, turned into files.

use std::path::{Path, PathBuf};

use crate::error::{Context, Result, bail};
use mathneuro_core::data::write_jsonl;
use mathneuro_core::hub::{DataSource, Hub, HubOptions, ModelSource, Progress, Purpose};

use crate::interrupt::Interrupt;
use crate::progress;
use crate::spec::{Evaluation, Spec, further_task};

/// Brings what arguments name, and hands out where it lies.
///
/// The hub's options are read from the environment when the first argument needs them.
pub struct Sources<'a> {
    interrupt: &'a Interrupt,
    hub: Option<Hub>,
}

/// What an argument named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Where it lies.
    pub path: PathBuf,
    /// The argument itself, or for the hub the id with the commit: it means the same tomorrow.
    pub exact: PathBuf,
}

impl<'a> Sources<'a> {
    /// From the hub that the environment names.
    pub fn new(interrupt: &'a Interrupt) -> Self {
        Self {
            interrupt,
            hub: None,
        }
    }

    /// From a hub of the caller's choice.
    pub fn from_hub(interrupt: &'a Interrupt, hub: Hub) -> Self {
        Self {
            interrupt,
            hub: Some(hub),
        }
    }

    fn hub(&mut self) -> Result<&Hub> {
        match self.hub {
            Some(ref hub) => Ok(hub),
            None => Ok(self.hub.insert(Hub::new(HubOptions::from_env()?)?)),
        }
    }

    /// A model's folder.
    ///
    /// # Errors
    /// The argument is neither a folder nor a hub id, or the hub cannot give it.
    pub fn model(&mut self, argument: &Path) -> Result<Source> {
        let id = match text(argument)?.parse()? {
            ModelSource::Folder(path) => return Ok(local(path)),
            ModelSource::Hub(id) => id,
        };
        let interrupt = self.interrupt;
        eprintln!("Looking up {id} on the hub");
        let found = with_bar(&id.to_string(), interrupt, |report| {
            Ok(self.hub()?.model(&id, report)?)
        })?;
        warn(found.unreached, &found.exact);
        Ok(Source {
            path: found.folder,
            exact: found.exact.to_string().into(),
        })
    }

    /// A data set's file.
    ///
    /// # Errors
    /// The argument is neither a file nor a data set on the hub, or the hub cannot give it.
    pub fn data(&mut self, argument: &Path, purpose: Purpose) -> Result<Source> {
        regular(argument)?;
        let id = match text(argument)?.parse()? {
            DataSource::File(path) => return Ok(local(path)),
            DataSource::Hub(id) => id,
        };
        let interrupt = self.interrupt;
        eprintln!("Looking up {id} on the hub");
        let found = with_bar(&id.to_string(), interrupt, |report| {
            Ok(self.hub()?.dataset(&id, purpose, report)?)
        })?;
        warn(found.unreached, &found.exact);
        if !found.jsonl.is_file() {
            write_jsonl(&found.files, &found.jsonl)?;
        }
        Ok(Source {
            path: found.jsonl,
            exact: found.exact.to_string().into(),
        })
    }

    /// Both forms of an experiment's arguments: with local paths to work on, and with exact names to write down.
    ///
    /// # Errors
    /// As [`Sources::model`] and [`Sources::data`].
    pub fn experiment(&mut self, args: &Spec) -> Result<(Spec, Spec)> {
        let (mut paths, mut exact) = (args.clone(), args.clone());
        (paths.evaluation, exact.evaluation) = self.evaluation(&args.evaluation)?;
        let skill = self.data(&args.skill, Purpose::Calibrate)?;
        put(skill, &mut paths.skill, &mut exact.skill);
        for (index, general) in args.general.iter().enumerate() {
            let found = self.data(general, Purpose::Calibrate)?;
            put(found, &mut paths.general[index], &mut exact.general[index]);
        }
        Ok((paths, exact))
    }

    /// Both forms of an evaluation's arguments.
    ///
    /// # Errors
    /// As [`Sources::model`] and [`Sources::data`].
    pub fn evaluation(&mut self, args: &Evaluation) -> Result<(Evaluation, Evaluation)> {
        let (mut paths, mut exact) = (args.clone(), args.clone());
        put(self.model(&args.model)?, &mut paths.model, &mut exact.model);
        for (path, name) in [
            (&mut paths.gsm8k, &mut exact.gsm8k),
            (&mut paths.race, &mut exact.race),
            (&mut paths.mmlu, &mut exact.mmlu),
        ] {
            if let (Some(path), Some(name)) = (path, name) {
                let found = self.data(&path.clone(), Purpose::Evaluate)?;
                put(found, path, name);
            }
        }
        for text in &args.perplexity {
            regular(text)?;
        }
        for (path, name) in paths.tasks.iter_mut().zip(&mut exact.tasks) {
            let mut found = further_task(path)?;
            if found.name.ends_with(".toml") {
                regular(found.name.as_ref())?;
            }
            let mut known = found.clone();
            let files = [
                (&mut found.documents, &mut known.documents),
                (&mut found.exemplars, &mut known.exemplars),
            ];
            for (path, name) in files {
                if let (Some(path), Some(name)) = (path, name) {
                    put(self.data(&path.clone(), Purpose::Evaluate)?, path, name);
                }
            }
            (*path, *name) = (found.to_string(), known.to_string());
        }
        Ok((paths, exact))
    }
}

fn put(source: Source, path: &mut PathBuf, name: &mut PathBuf) {
    (*path, *name) = (source.path, source.exact);
}

/// Refuses what can be read only once, for its content is read and hashed. What is not there is found by its reader.
fn regular(path: &Path) -> Result<()> {
    if path.exists() && !path.is_file() {
        bail!(
            "{} is not a regular file but a folder, pipe or device; give a file, which can be read more than once",
            path.display()
        );
    }
    Ok(())
}

fn text(argument: &Path) -> Result<&str> {
    argument
        .to_str()
        .with_context(|| format!("{} is not UTF-8", argument.display()))
}

/// Says so when the cache had to do instead of the hub.
fn warn(unreached: Option<String>, exact: &impl std::fmt::Display) {
    if let Some(why) = unreached {
        eprintln!("Warning: {why}; the cache has {exact}, which is used");
    }
}

fn local(path: PathBuf) -> Source {
    Source {
        exact: path.clone(),
        path,
    }
}

/// A bar in bytes while something comes from the hub; what is there already shows none.
fn with_bar<T>(
    what: &str,
    interrupt: &Interrupt,
    fetch: impl FnOnce(&(dyn Fn(Progress) -> bool + Sync)) -> Result<T>,
) -> Result<T> {
    let bar = progress::bytes(what);
    let found = fetch(&|progress: Progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        !interrupt.raised()
    });
    bar.finish_and_clear();
    found
}
