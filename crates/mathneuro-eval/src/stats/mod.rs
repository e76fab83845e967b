//! Standard errors, intervals and paired comparisons.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{EvalError, Result};

mod python_random;

pub use python_random::PythonRandom;

/// Samples of a bootstrap.
const BOOTSTRAPS: usize = 2000;

/// The 97.5 % point of the normal distribution.
const Z95: f64 = 1.959_963_984_540_054;

/// A number with its standard error and 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metric {
    /// The number.
    #[serde(deserialize_with = "number_or_null")]
    pub value: f64,
    /// Its standard error; 0 when there is one item only.
    #[serde(deserialize_with = "number_or_null")]
    pub stderr: f64,
    /// Low end of the 95 % interval.
    #[serde(deserialize_with = "number_or_null")]
    pub low: f64,
    /// High end of the 95 % interval.
    #[serde(deserialize_with = "number_or_null")]
    pub high: f64,
}

/// Value, standard error and interval, `0.55 ± 0.05 [0.45, 0.64]`: with two decimals, or with as many as `{:.4}` asks for.
impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = f.precision().unwrap_or(2);
        let Self {
            value,
            stderr,
            low,
            high,
        } = self;
        write!(
            f,
            "{value:.places$} ± {stderr:.places$} [{low:.places$}, {high:.places$}]"
        )
    }
}

/// JSON has no number for what is not one: it is written as null, and read back as NaN.
fn number_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl Metric {
    /// The fraction of right items: standard error as lm-evaluation-harness has it (sample standard deviation over the root
    /// of n), interval by Wilson.
    pub fn proportion(right: usize, n: usize) -> Self {
        let (low, high) = wilson(right, n);
        if n == 0 {
            return Self {
                value: 0.0,
                stderr: 0.0,
                low,
                high,
            };
        }
        let value = right as f64 / n as f64;
        let stderr = if n > 1 {
            (value * (1.0 - value) / (n - 1) as f64).sqrt()
        } else {
            0.0
        };
        Self {
            value,
            stderr,
            low,
            high,
        }
    }

    /// `exp` of a mean, such as a perplexity: the standard error by the delta method, the interval from the mean's.
    pub fn exp_of_mean(mean: f64, stderr_of_mean: f64) -> Self {
        Self {
            value: mean.exp(),
            stderr: mean.exp() * stderr_of_mean,
            low: (mean - Z95 * stderr_of_mean).exp(),
            high: (mean + Z95 * stderr_of_mean).exp(),
        }
    }

    /// A number with the interval of the normal distribution.
    pub fn normal(value: f64, stderr: f64) -> Self {
        Self {
            value,
            stderr,
            low: value - Z95 * stderr,
            high: value + Z95 * stderr,
        }
    }

    /// A statistic of the items 0 to `n` by bootstrap: the statistic is worked out on 2,000 draws of `n` items with
    /// replacement; their standard deviation is the standard error, their 2.5 % and 97.5 % points are the interval.
    pub fn bootstrap(n: usize, seed: u64, statistic: impl Fn(&[usize]) -> f64) -> Self {
        let all: Vec<usize> = (0..n).collect();
        let value = statistic(&all);
        if n < 2 {
            return Self {
                value,
                stderr: 0.0,
                low: value,
                high: value,
            };
        }
        let mut random = PythonRandom::new(seed);
        let mut drawn = vec![0; n];
        let mut values: Vec<f64> = (0..BOOTSTRAPS)
            .map(|_| {
                drawn.fill_with(|| random.below(n));
                statistic(&drawn)
            })
            .collect();
        values.sort_by(f64::total_cmp);
        let mean = values.iter().sum::<f64>() / BOOTSTRAPS as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        // Linear between neighbours, as numpy's percentile.
        let point = |p: f64| {
            let place = p * (BOOTSTRAPS - 1) as f64;
            let below = place.floor() as usize;
            let above = (below + 1).min(BOOTSTRAPS - 1);
            values[below] + (place - below as f64) * (values[above] - values[below])
        };
        Self {
            value,
            stderr: (squares / (BOOTSTRAPS - 1) as f64).sqrt(),
            low: point(0.025),
            high: point(0.975),
        }
    }
}

/// Wilson's 95 % interval of a proportion; the whole of [0, 1] for no item.
pub fn wilson(right: usize, n: usize) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let (n, p) = (n as f64, right as f64 / n as f64);
    let z2 = Z95 * Z95;
    let centre = p + z2 / (2.0 * n);
    let half = Z95 * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    (
        ((centre - half) / scale).max(0.0),
        ((centre + half) / scale).min(1.0),
    )
}

/// Two runs over the same items.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Paired {
    /// Mean of second minus first.
    pub difference: f64,
    /// Its standard error.
    pub stderr: f64,
    /// Low end of the 95 % interval (normal).
    pub low: f64,
    /// High end of the 95 % interval.
    pub high: f64,
    /// Exact two-sided p-value of McNemar's test.
    pub p_value: f64,
}

/// Compares which items two runs got right.
///
/// # Errors
/// [`EvalError::NotPaired`] when the numbers of items differ or are zero.
pub fn paired(first: &[bool], second: &[bool]) -> Result<Paired> {
    if first.len() != second.len() || first.is_empty() {
        return Err(EvalError::NotPaired {
            left: first.len(),
            right: second.len(),
        });
    }
    let n = first.len() as f64;
    let lost = first
        .iter()
        .zip(second)
        .filter(|(a, b)| **a && !**b)
        .count();
    let won = first
        .iter()
        .zip(second)
        .filter(|(a, b)| !**a && **b)
        .count();
    let difference = (won as f64 - lost as f64) / n;
    let variance = (won + lost) as f64 / n - difference * difference;
    let stderr = if n > 1.0 {
        (variance / (n - 1.0)).sqrt()
    } else {
        0.0
    };
    Ok(Paired {
        difference,
        stderr,
        low: difference - Z95 * stderr,
        high: difference + Z95 * stderr,
        p_value: mcnemar(lost, won),
    })
}

/// The mean difference of two runs' scores over the same items, second minus first, by bootstrap over the items.
///
/// # Errors
/// [`EvalError::NotPaired`] when the numbers of items differ or are zero.
pub fn paired_scores(first: &[f64], second: &[f64], seed: u64) -> Result<Metric> {
    if first.len() != second.len() || first.is_empty() {
        return Err(EvalError::NotPaired {
            left: first.len(),
            right: second.len(),
        });
    }
    let mean = |items: &[usize]| {
        let sum: f64 = items.iter().map(|&item| second[item] - first[item]).sum();
        sum / items.len() as f64
    };
    Ok(Metric::bootstrap(first.len(), seed, mean))
}

/// Exact two-sided McNemar test: how likely is a split at least this uneven among the items that changed.
pub fn mcnemar(lost: usize, won: usize) -> f64 {
    let n = lost + won;
    // Terms of the binomial distribution with p = 1/2, from the logarithm so that large n do not underflow.
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for k in 0..=lost.min(won) {
        tail += log_term.exp();
        log_term += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    (2.0 * tail).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_as_published() {
        // Newcombe (1998), table I, method 3.
        for (right, n, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let found = wilson(right, n);
            assert!(
                (found.0 - low).abs() < 5e-5 && (found.1 - high).abs() < 5e-5,
                "{found:?}"
            );
        }
    }

    #[test]
    fn mcnemar_is_the_binomial_tail() {
        // Two-sided exact binomial tests with p = 1/2, worked out by hand.
        assert!((mcnemar(0, 5) - 2.0 / 32.0).abs() < 1e-12);
        assert!((mcnemar(1, 5) - 2.0 * 7.0 / 64.0).abs() < 1e-12);
        assert_eq!(mcnemar(3, 3), 1.0);
        assert_eq!(mcnemar(0, 0), 1.0);
        assert!(mcnemar(0, 3000) < 1e-300);
    }

    #[test]
    fn a_proportion_has_the_sample_standard_error() {
        let metric = Metric::proportion(3, 4);
        assert_eq!(metric.value, 0.75);
        assert!((metric.stderr - (0.75f64 * 0.25 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Metric::proportion(0, 0).value, 0.0);
    }

    #[test]
    fn a_bootstrap_finds_the_standard_error_of_a_mean() {
        // The mean of 0 .. 99: its standard deviation is 29.0115, so its standard error 2.90 (2.89 with n below).
        let mean = |items: &[usize]| items.iter().sum::<usize>() as f64 / items.len() as f64;
        let found = Metric::bootstrap(100, 7, mean);
        assert_eq!(found.value, 49.5);
        assert!((found.stderr - 2.89).abs() < 0.15, "{found:?}");
        assert!(
            (found.low - 43.8).abs() < 0.5 && (found.high - 55.2).abs() < 0.5,
            "{found:?}"
        );
        assert_eq!(
            found,
            Metric::bootstrap(100, 7, mean),
            "the same seed, the same numbers"
        );
        assert_ne!(found, Metric::bootstrap(100, 8, mean));
        let single = Metric::bootstrap(1, 7, mean);
        assert_eq!((single.stderr, single.low, single.high), (0.0, 0.0, 0.0));
        let paired = paired_scores(&[1.0, 2.0, 3.0], &[2.0, 3.0, 4.0], 0).unwrap();
        assert_eq!((paired.value, paired.stderr), (1.0, 0.0));
        assert!(paired_scores(&[], &[], 0).is_err());
    }

    #[test]
    fn a_paired_difference_counts_changes_only() {
        let first = [true, true, false, false];
        let second = [true, false, false, false];
        let found = paired(&first, &second).unwrap();
        assert_eq!(found.difference, -0.25);
        assert_eq!(found.p_value, 1.0);
        assert!(paired(&first, &second[1..]).is_err());
    }
}
