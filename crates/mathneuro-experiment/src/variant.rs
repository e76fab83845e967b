//! The rows of an experiment: which parameters are edited, and how.

use mathneuro_core::Operation;

/// One row: an edit of the model, or none.
#[derive(Debug, Clone, PartialEq)]
pub enum Variant {
    /// The model as it is.
    Unedited,
    /// Parameters that one method chose for one K and repeat, edited in one way.
    Edited {
        /// The method's name.
        method: String,
        /// The fraction of each matrix that counts as important.
        k: f64,
        /// The repeat, from 0.
        repeat: u64,
        /// What is done to them.
        operation: Operation,
    },
}

impl Variant {
    /// The name of the row in file names.
    pub fn id(&self) -> String {
        match self {
            Self::Unedited => "unedited".to_owned(),
            Self::Edited {
                method,
                k,
                repeat,
                operation,
            } => {
                let edit = match operation {
                    Operation::Scale(factor) => format!("scale{factor}"),
                    _ => "prune".to_owned(),
                };
                format!("{edit}-{}", mask_id(method, *k, *repeat))
            }
        }
    }

    /// The name of the row in tables.
    pub fn label(&self) -> String {
        match self {
            Self::Unedited => "unedited".to_owned(),
            Self::Edited {
                method, operation, ..
            } => match operation {
                Operation::Scale(factor) => format!("{method} x{factor}"),
                _ => format!("{method} pruned"),
            },
        }
    }
}

/// The name of a mask in file names.
pub fn mask_id(method: &str, k: f64, repeat: u64) -> String {
    // Plain digits as they were given; 1e-300 would be three hundred of them.
    match k > 0.0 && k < 1e-6 {
        true => format!("{method}-k{k:e}-r{repeat}"),
        false => format!("{method}-k{k}-r{repeat}"),
    }
}

/// All rows: the unedited model first, then per repeat, K and operation each method.
pub fn plan(ks: &[f64], repeats: u64, operations: &[Operation], methods: &[&str]) -> Vec<Variant> {
    let mut rows = vec![Variant::Unedited];
    for repeat in 0..repeats {
        for &k in ks {
            for operation in operations {
                for &method in methods {
                    rows.push(Variant::Edited {
                        method: method.to_owned(),
                        k,
                        repeat,
                        operation: operation.clone(),
                    });
                }
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_own_name() {
        let operations = [
            Operation::Prune,
            Operation::Scale(1.01),
            Operation::Scale(1.1),
        ];
        let rows = plan(&[0.001, 0.01], 2, &operations, &["isolated", "random"]);
        assert_eq!(rows.len(), 1 + 2 * 2 * 3 * 2);
        let mut ids: Vec<String> = rows.iter().map(Variant::id).collect();
        assert_eq!(ids[0], "unedited");
        assert_eq!(ids[1], "prune-isolated-k0.001-r0");
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), rows.len());
        assert_eq!(mask_id("random", 1e-300, 0), "random-k1e-300-r0");
    }
}
