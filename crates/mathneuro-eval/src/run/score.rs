//! From items that are right or wrong to metrics.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::result::{Subtask, TaskResult};
use crate::stats::Metric;
use crate::task::{Task, TaskDefinition};

/// An evaluated item: its place in the task, and whether it is right by each metric.
pub struct Scored {
    pub item: usize,
    pub right: Vec<bool>,
    pub sample: Map<String, Value>,
}

impl Task {
    /// What every sample holds of its item.
    pub(super) fn sample(&self, index: usize) -> Map<String, Value> {
        Map::from_iter([
            ("doc_id".to_owned(), json!(index)),
            ("row".to_owned(), json!(self.items[index].row)),
        ])
    }

    /// The result of items that are right or wrong by each of these metrics.
    pub(super) fn result(&self, names: &[String], scored: Vec<Scored>) -> TaskResult {
        let definition = &self.definition;
        let n = if names.is_empty() {
            self.items.len()
        } else {
            scored.len()
        };
        let mut by_part: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (place, scored) in scored.iter().enumerate() {
            if let Some(part) = &self.items[scored.item].part {
                for name in part_names(definition, part) {
                    by_part.entry(name).or_default().push(place);
                }
            }
        }
        let metrics = |places: &[usize]| -> BTreeMap<String, Metric> {
            let proportion = |metric: usize| {
                let right = places.iter().filter(|&&place| scored[place].right[metric]);
                Metric::proportion(right.count(), places.len())
            };
            let named = names.iter().enumerate();
            named
                .map(|(metric, name)| (name.clone(), proportion(metric)))
                .collect()
        };
        let all: Vec<usize> = (0..scored.len()).collect();
        TaskResult {
            task: definition.name.clone(),
            primary: names.first().cloned().unwrap_or_default(),
            version: definition.version,
            n,
            metrics: metrics(&all),
            truncated: 0,
            fewshot: definition.fewshot.count,
            unfinished: 0,
            skipped: self.skipped.clone(),
            parts: by_part
                .iter()
                .map(|(name, places)| {
                    let part = Subtask {
                        n: places.len(),
                        metrics: metrics(places),
                    };
                    (name.clone(), part)
                })
                .collect(),
            samples: scored
                .into_iter()
                .map(|scored| scored.sample.into())
                .collect(),
        }
    }
}

/// A part and the groups that it belongs to.
fn part_names(definition: &TaskDefinition, part: &str) -> Vec<String> {
    let mut names = vec![format!("{}_{part}", definition.name)];
    if let Some(groups) = &definition.groups {
        let member = |members: &Vec<String>| members.iter().any(|member| member == part);
        let of = groups.members.iter().filter(|(_, members)| member(members));
        names.extend(of.map(|(group, _)| format!("{}_{group}", definition.name)));
    }
    names
}
