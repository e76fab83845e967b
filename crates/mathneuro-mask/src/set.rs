//! Masks of many parameters, by name.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{BitAnd, BitOr, BitXor, Not, Sub};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::counts::{jaccard_of, ratio};
use crate::error::{MaskError, Result, shorten};
use crate::ops::operators;
use crate::param::ParamMask;

/// What a mask set was made from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MaskMeta {
    /// The fraction K of each comparison group that counts as important.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<f64>,
    /// How the set was combined, for example `gsm8k - (race | mmlu)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formula: Option<String>,
    /// The seed of whatever was random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The fingerprint of the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Anything else, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
}

impl MaskMeta {
    /// With this K.
    #[must_use]
    pub fn with_k(mut self, k: f64) -> Self {
        self.k = Some(k);
        self
    }

    /// With this formula.
    #[must_use]
    pub fn with_formula(mut self, formula: impl Into<String>) -> Self {
        self.formula = Some(formula.into());
        self
    }

    /// With this seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// With this fingerprint.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.fingerprint = Some(fingerprint.into());
        self
    }

    /// What two combined sets have in common; the formula is put together with the operator.
    fn combined(&self, other: &Self, operator: &str) -> Self {
        fn same<T: PartialEq + Clone>(a: &Option<T>, b: &Option<T>) -> Option<T> {
            if a == b { a.clone() } else { None }
        }
        let wrap = |formula: &str| {
            if formula.contains(' ') {
                format!("({formula})")
            } else {
                formula.to_owned()
            }
        };
        let formula = match (&self.formula, &other.formula) {
            (Some(a), Some(b)) => Some(format!("{} {operator} {}", wrap(a), wrap(b))),
            _ => None,
        };
        let mut extra = self.extra.clone();
        extra.retain(|name, value| other.extra.get(name) == Some(value));
        Self {
            k: same(&self.k, &other.k),
            formula,
            seed: same(&self.seed, &other.seed),
            fingerprint: same(&self.fingerprint, &other.fingerprint),
            extra,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Masked {
    shape: Vec<usize>,
    mask: ParamMask,
}

/// One mask per parameter, by Hugging Face name, with the parameter's shape.
#[derive(Debug, Clone, PartialEq)]
pub struct MaskSet {
    entries: BTreeMap<String, Masked>,
    meta: MaskMeta,
}

impl MaskSet {
    /// A set of no parameter.
    pub fn new(meta: MaskMeta) -> Self {
        Self {
            entries: BTreeMap::new(),
            meta,
        }
    }

    /// Adds the mask of a parameter.
    ///
    /// # Errors
    /// [`MaskError::ShapeMismatch`] when the mask's length is not the product of the shape,
    /// [`MaskError::Duplicate`] when the parameter is already there.
    pub fn insert(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        mask: ParamMask,
    ) -> Result<()> {
        let name = name.into();
        let numel = shape
            .iter()
            .try_fold(1usize, |product, &size| product.checked_mul(size));
        if numel != Some(mask.len()) {
            return Err(MaskError::ShapeMismatch {
                name,
                shape: shape.to_vec(),
                numel: numel.map_or("too many".to_owned(), |n| n.to_string()),
                len: mask.len(),
            });
        }
        match self.entries.entry(name) {
            Entry::Occupied(entry) => Err(MaskError::Duplicate(entry.key().clone())),
            Entry::Vacant(entry) => {
                entry.insert(Masked {
                    shape: shape.to_vec(),
                    mask,
                });
                Ok(())
            }
        }
    }

    /// The mask of a parameter.
    pub fn get(&self, name: &str) -> Option<&ParamMask> {
        self.entries.get(name).map(|entry| &entry.mask)
    }

    /// The shape of a parameter.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entries.get(name).map(|entry| entry.shape.as_slice())
    }

    /// Name, shape and mask of every parameter, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[usize], &ParamMask)> {
        self.entries
            .iter()
            .map(|(name, e)| (name.as_str(), e.shape.as_slice(), &e.mask))
    }

    /// The names of the parameters, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Number of parameters (tensors).
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the set covers no parameter.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What the set was made from.
    pub fn meta(&self) -> &MaskMeta {
        &self.meta
    }

    /// What the set was made from, to be changed.
    pub fn meta_mut(&mut self) -> &mut MaskMeta {
        &mut self.meta
    }

    /// Set bits in all parameters.
    pub fn count(&self) -> usize {
        self.entries.values().map(|e| e.mask.count()).sum()
    }

    /// Elements of all parameters.
    pub fn numel(&self) -> usize {
        self.entries.values().map(|e| e.mask.len()).sum()
    }

    /// Set bits as a fraction of all elements; 0 for a set of no parameter.
    pub fn density(&self) -> f64 {
        ratio(self.count(), self.numel(), 0.0)
    }

    fn check_same(&self, other: &Self) -> Result<()> {
        let missing = |a: &Self, b: &Self| -> Vec<String> {
            a.entries
                .keys()
                .filter(|name| !b.entries.contains_key(*name))
                .cloned()
                .collect()
        };
        let (only_left, only_right) = (missing(self, other), missing(other, self));
        let shapes: Vec<String> = self
            .entries
            .iter()
            .filter_map(|(name, e)| other.entries.get(name).map(|o| (name, &e.shape, &o.shape)))
            .filter(|(_, a, b)| a != b)
            .map(|(name, a, b)| format!("{name} {a:?} and {b:?}"))
            .collect();
        if only_left.is_empty() && only_right.is_empty() && shapes.is_empty() {
            return Ok(());
        }
        Err(MaskError::SetMismatch {
            only_left: shorten(only_left),
            only_right: shorten(only_right),
            shapes: shorten(shapes),
        })
    }

    fn combine_assign(
        &mut self,
        other: &Self,
        operator: &str,
        op: impl Fn(&mut ParamMask, &ParamMask) -> Result<()> + Sync,
    ) -> Result<()> {
        self.check_same(other)?;
        let pairs: Vec<_> = self.entries.iter_mut().zip(&other.entries).collect();
        pairs
            .into_par_iter()
            .try_for_each(|((_, a), (_, b))| op(&mut a.mask, &b.mask))?;
        self.meta = self.meta.combined(&other.meta, operator);
        Ok(())
    }

    /// Bits set in both.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn and(&self, other: &Self) -> Result<Self> {
        self.clone() & other
    }

    /// Bits set in either.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn or(&self, other: &Self) -> Result<Self> {
        self.clone() | other
    }

    /// Bits set here and not in the other.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn and_not(&self, other: &Self) -> Result<Self> {
        self.clone() - other
    }

    /// Bits set in exactly one.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn xor(&self, other: &Self) -> Result<Self> {
        self.clone() ^ other
    }

    /// Bits that are not set, over the same parameters.
    #[must_use]
    pub fn complement(&self) -> Self {
        !self.clone()
    }

    /// Keeps only bits that are also set in the other.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`]; this set is then unchanged.
    pub fn and_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, "&", ParamMask::and_assign)
    }

    /// Adds the other's bits.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`]; this set is then unchanged.
    pub fn or_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, "|", ParamMask::or_assign)
    }

    /// Removes the other's bits.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`]; this set is then unchanged.
    pub fn and_not_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, "-", ParamMask::and_not_assign)
    }

    /// Flips the bits that are set in the other.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`]; this set is then unchanged.
    pub fn xor_assign(&mut self, other: &Self) -> Result<()> {
        self.combine_assign(other, "^", ParamMask::xor_assign)
    }

    fn sum_pairs(
        &self,
        other: &Self,
        count: impl Fn(&ParamMask, &ParamMask) -> Result<usize> + Sync,
    ) -> Result<usize> {
        self.check_same(other)?;
        let pairs: Vec<_> = self.entries.iter().zip(&other.entries).collect();
        pairs
            .into_par_iter()
            .map(|((_, a), (_, b))| count(&a.mask, &b.mask))
            .sum()
    }

    /// Number of bits set in both.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn intersection_count(&self, other: &Self) -> Result<usize> {
        self.sum_pairs(other, ParamMask::intersection_count)
    }

    /// Number of bits set in either.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn union_count(&self, other: &Self) -> Result<usize> {
        self.sum_pairs(other, ParamMask::union_count)
    }

    /// Number of bits set here and not in the other.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn difference_count(&self, other: &Self) -> Result<usize> {
        self.sum_pairs(other, ParamMask::difference_count)
    }

    /// Jaccard index over all parameters pooled; 1 when no bit is set in either.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn jaccard(&self, other: &Self) -> Result<f64> {
        Ok(jaccard_of(
            self.intersection_count(other)?,
            self.count(),
            other.count(),
        ))
    }

    /// Overlap coefficient over all parameters pooled; 1 when one of the sets has no bit.
    ///
    /// # Errors
    /// [`MaskError::SetMismatch`] when names or shapes differ.
    pub fn overlap(&self, other: &Self) -> Result<f64> {
        let both = self.intersection_count(other)?;
        Ok(ratio(both, self.count().min(other.count()), 1.0))
    }

    /// The union of many sets.
    ///
    /// # Errors
    /// [`MaskError::NoSets`] for none, [`MaskError::SetMismatch`] when they differ.
    pub fn union_of(sets: &[&Self]) -> Result<Self> {
        Self::fold(sets, Self::or_assign)
    }

    /// The intersection of many sets.
    ///
    /// # Errors
    /// [`MaskError::NoSets`] for none, [`MaskError::SetMismatch`] when they differ.
    pub fn intersection_of(sets: &[&Self]) -> Result<Self> {
        Self::fold(sets, Self::and_assign)
    }

    fn fold(sets: &[&Self], op: impl Fn(&mut Self, &Self) -> Result<()>) -> Result<Self> {
        let (first, rest) = sets.split_first().ok_or(MaskError::NoSets)?;
        let mut result = (*first).clone();
        for set in rest {
            op(&mut result, set)?;
        }
        Ok(result)
    }
}

operators! { MaskSet, MaskError,
    BitAnd, bitand => and, and_assign;
    BitOr, bitor => or, or_assign;
    BitXor, bitxor => xor, xor_assign;
    Sub, sub => and_not, and_not_assign;
}

impl Not for MaskSet {
    type Output = Self;
    fn not(mut self) -> Self {
        for entry in self.entries.values_mut() {
            entry.mask = !std::mem::replace(&mut entry.mask, ParamMask::zeros(0));
        }
        self.meta.formula = self.meta.formula.map(|formula| format!("!({formula})"));
        self
    }
}

impl Not for &MaskSet {
    type Output = MaskSet;
    fn not(self) -> MaskSet {
        self.complement()
    }
}
