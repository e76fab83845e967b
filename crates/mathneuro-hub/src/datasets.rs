//! Data sets: which parquet files hold a split.

use crate::error::{HubError, Result};
use crate::id::DatasetId;

/// What rows are wanted for, where an argument names no split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Calibration texts.
    Calibrate,
    /// Questions to be answered.
    Evaluate,
}

/// What the tasks' own data sets mean by their bare name.
struct Known {
    ids: &'static [&'static str],
    /// `None`: all configurations, one after another.
    config: Option<&'static str>,
    calibrate: &'static str,
    evaluate: &'static str,
}

const KNOWN: [Known; 4] = [
    Known {
        ids: &["openai/gsm8k"],
        config: Some("main"),
        calibrate: "train",
        evaluate: "test",
    },
    Known {
        ids: &["EleutherAI/race", "ehovy/race"],
        config: Some("high"),
        calibrate: "train",
        evaluate: "test",
    },
    // Its training part is made of other data sets' questions, RACE's among them.
    Known {
        ids: &["cais/mmlu"],
        config: Some("all"),
        calibrate: "validation",
        evaluate: "test",
    },
    Known {
        ids: &["EleutherAI/hendrycks_math"],
        config: None,
        calibrate: "train",
        evaluate: "test",
    },
];

/// The name for all configurations together.
pub(crate) const ALL: &str = "all";

/// The parquet files of one split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) config: String,
    pub(crate) split: String,
    pub(crate) files: Vec<String>,
}

/// A parquet file's place in a data set, from its path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    config: String,
    split: String,
    /// How many files the split has, where the name says so.
    of: Option<usize>,
}

/// Reads the three layouts that the hub knows: `config/split-00000-of-00001.parquet` (and `data/split-...`, without a
/// configuration), `config/split/0000.parquet`, and `config/split.parquet`.
fn place(path: &str) -> Option<Place> {
    let stem = path.strip_suffix(".parquet")?;
    let mut parts: Vec<&str> = stem.split('/').collect();
    let name = parts.pop()?;
    let (split, of) = if name.bytes().all(|b| b.is_ascii_digit()) {
        (parts.pop()?, None)
    } else {
        match name.split_once("-of-") {
            Some((front, back)) => {
                let (split, number) = front.rsplit_once('-')?;
                number.parse::<usize>().ok()?;
                // A hash of the contents may follow.
                let count = back.split('-').next().unwrap_or_default();
                (split, Some(count.parse().ok()?))
            }
            None => (name, None),
        }
    };
    let config = match parts.last() {
        None | Some(&"data") => "default",
        Some(config) => config,
    };
    Some(Place {
        config: config.to_owned(),
        split: split.to_owned(),
        of,
    })
}

/// The splits among a repository's files.
fn splits(files: &[String]) -> Vec<(Place, Vec<String>)> {
    let mut found: Vec<(Place, Vec<String>)> = Vec::new();
    let mut sorted: Vec<&String> = files.iter().collect();
    sorted.sort();
    for file in sorted {
        let Some(place) = place(file) else { continue };
        let same = |(other, _): &&mut (Place, Vec<String>)| {
            other.config == place.config && other.split == place.split
        };
        match found.iter_mut().find(same) {
            Some((_, files)) => files.push(file.clone()),
            None => found.push((place, vec![file.clone()])),
        }
    }
    found
}

/// The files that an argument means. The result has one entry, or one for each configuration where all are meant.
pub(crate) fn choose(id: &DatasetId, files: &[String], purpose: Purpose) -> Result<Vec<Split>> {
    let found = splits(files);
    let known = KNOWN.iter().find(|known| {
        let mut ids = known.ids.iter();
        ids.any(|name| name.eq_ignore_ascii_case(id.repo().id()))
    });
    let mut configs: Vec<&str> = found
        .iter()
        .map(|(place, _)| place.config.as_str())
        .collect();
    configs.dedup();
    let is_config = |name: &str| configs.contains(&name);
    let (config, split) = match id.parts() {
        [config, split, ..] => (Some(config.as_str()), Some(split.as_str())),
        // One word is a configuration if there is one of that name, and else a split.
        [one] if is_config(one) || one == ALL => (Some(one.as_str()), None),
        [one] => (None, Some(one.as_str())),
        [] => (None, None),
    };
    let config = config.or(match known {
        Some(known) => known.config.or(Some(ALL)),
        None => match configs.as_slice() {
            [only] => Some(*only),
            _ => configs.iter().find(|name| **name == "default").copied(),
        },
    });
    let there = || {
        let mut names: Vec<String> = found
            .iter()
            .map(|(place, _)| format!("{}/{}", place.config, place.split))
            .take(20)
            .collect();
        match found.len() {
            0 => names.push("no parquet file".to_owned()),
            more if more > names.len() => names.push("...".to_owned()),
            _ => {}
        }
        names.join(", ")
    };
    let none = |asked: String| HubError::SplitNotFound {
        dataset: id.repo().to_string(),
        asked,
        there: there(),
    };
    let Some(config) = config else {
        return Err(none("default configuration".to_owned()));
    };
    let of_config: Vec<_> = found
        .iter()
        .filter(|(place, _)| place.config == config || (config == ALL && !is_config(ALL)))
        .collect();
    let usual = match (known, purpose) {
        (Some(known), Purpose::Calibrate) => known.calibrate,
        (Some(known), Purpose::Evaluate) => known.evaluate,
        (None, Purpose::Calibrate) => "train",
        (None, Purpose::Evaluate) => "test",
    };
    let split = split.unwrap_or(match of_config.as_slice() {
        [(only, _)] => &only.split,
        _ => usual,
    });
    let chosen: Vec<_> = of_config
        .into_iter()
        .filter(|(place, _)| place.split == split)
        .collect();
    if chosen.is_empty() {
        return Err(none(format!("{config}/{split}")));
    }
    for (place, files) in &chosen {
        if place.of.is_some_and(|count| count != files.len()) {
            return Err(none(format!(
                "complete {config}/{split} ({} of {} files)",
                files.len(),
                place.of.unwrap_or_default()
            )));
        }
    }
    Ok(chosen
        .into_iter()
        .map(|(place, files)| Split {
            config: place.config.clone(),
            split: place.split.clone(),
            files: files.clone(),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn chosen(id: &str, files: &[&str], purpose: Purpose) -> Vec<String> {
        let id = id.parse().unwrap();
        let splits = choose(&id, &names(files), purpose).unwrap_or_else(|error| panic!("{error}"));
        splits.into_iter().flat_map(|split| split.files).collect()
    }

    const GSM8K: [&str; 5] = [
        "README.md",
        "main/test-00000-of-00001.parquet",
        "main/train-00000-of-00001.parquet",
        "socratic/test-00000-of-00001.parquet",
        "socratic/train-00000-of-00001.parquet",
    ];

    #[test]
    fn the_bare_name_of_a_known_data_set_means_what_the_purpose_needs() {
        let (calibrate, evaluate) = (Purpose::Calibrate, Purpose::Evaluate);
        let gsm8k = |purpose| chosen("hub:openai/gsm8k", &GSM8K, purpose);
        assert_eq!(gsm8k(calibrate), [GSM8K[2]]);
        assert_eq!(gsm8k(evaluate), [GSM8K[1]]);
        let mmlu = [
            "all/dev-00000-of-00001.parquet",
            "all/test-00000-of-00001.parquet",
            "all/validation-00000-of-00001.parquet",
            "anatomy/test-00000-of-00001.parquet",
            "auxiliary_train/train-00000-of-00001.parquet",
        ];
        assert_eq!(chosen("hub:cais/mmlu", &mmlu, calibrate), [mmlu[2]]);
        assert_eq!(chosen("hub:cais/mmlu", &mmlu, evaluate), [mmlu[1]]);
        assert_eq!(chosen("hub:cais/mmlu/anatomy", &mmlu, evaluate), [mmlu[3]]);
        let math = [
            "algebra/test-00000-of-00001.parquet",
            "algebra/train-00000-of-00001.parquet",
            "geometry/test-00000-of-00001.parquet",
            "geometry/train-00000-of-00001.parquet",
        ];
        assert_eq!(
            chosen("hub:EleutherAI/hendrycks_math", &math, evaluate),
            [math[0], math[2]]
        );
        let race = ["high/test-00000-of-00001.parquet"];
        assert_eq!(chosen("hub:EleutherAI/race", &race, calibrate), race);
    }

    #[test]
    fn a_split_may_be_named_in_every_layout() {
        let purpose = Purpose::Calibrate;
        assert_eq!(
            chosen("hub:openai/gsm8k/socratic/test", &GSM8K, purpose),
            [GSM8K[3]]
        );
        assert_eq!(chosen("hub:openai/gsm8k/test", &GSM8K, purpose), [GSM8K[1]]);
        let two = [
            "data/train-00000-of-00002.parquet",
            "data/train-00001-of-00002.parquet",
        ];
        assert_eq!(chosen("hub:a/b", &two, purpose), two);
        let hashed = ["data/train-00000-of-00001-a09b74b3ef9c3b56.parquet"];
        assert_eq!(chosen("hub:a/b/train", &hashed, purpose), hashed);
        let converted = [
            "main/test/0000.parquet",
            "main/train/0000.parquet",
            "main/train/0001.parquet",
        ];
        assert_eq!(
            chosen("hub:a/b/main/train", &converted, purpose),
            converted[1..]
        );
        let plain = ["train.parquet", "test.parquet"];
        assert_eq!(chosen("hub:a/b", &plain, purpose), plain[..1]);
    }

    #[test]
    fn what_is_not_there_is_named_beside_what_is() {
        let error = |id: &str, files: &[&str]| {
            let id = id.parse().unwrap();
            choose(&id, &names(files), Purpose::Evaluate)
                .unwrap_err()
                .to_string()
        };
        let message = error("hub:openai/gsm8k/main/dev", &GSM8K);
        assert!(
            message.contains("no main/dev") && message.contains("socratic/train"),
            "{message}"
        );
        let message = error("hub:a/b", &["x/train.parquet", "y/train.parquet"]);
        assert!(message.contains("x/train, y/train"), "{message}");
        let message = error("hub:a/b", &["data/train-00001-of-00002.parquet"]);
        assert!(message.contains("1 of 2 files"), "{message}");
        let message = error("hub:a/b", &["train.csv"]);
        assert!(message.contains("no parquet file"), "{message}");
    }
}
