//! Masks of many parameters, by name.

mod counts;
mod file;
mod ops;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::error::{MaskError, Result, shorten};
use crate::meta::MaskMeta;
use crate::param::ParamMask;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Masked {
    pub(crate) shape: Vec<usize>,
    pub(crate) mask: ParamMask,
}

/// One mask per parameter, by Hugging Face name, with the parameter's shape.
///
/// ```
/// use mathneuro_mask::{MaskMeta, MaskSet, ParamMask};
///
/// # fn main() -> Result<(), mathneuro_mask::MaskError> {
/// let mut set = MaskSet::new(MaskMeta::default().with_k(0.25));
/// set.insert("up_proj.weight", &[2, 4], ParamMask::from_indices(8, [3, 6])?)?;
/// assert_eq!(set.count(), 2);
/// assert!(MaskSet::from_bytes(&set.to_bytes()?)?.same_bits(&set));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MaskSet {
    pub(crate) entries: BTreeMap<String, Masked>,
    pub(crate) meta: MaskMeta,
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

    /// Whether both sets cover the same parameters with the same bits, whatever they were made from.
    pub fn same_bits(&self, other: &Self) -> bool {
        self.entries == other.entries
    }

    /// What the set was made from.
    pub fn meta(&self) -> &MaskMeta {
        &self.meta
    }

    /// What the set was made from, to be changed.
    pub fn meta_mut(&mut self) -> &mut MaskMeta {
        &mut self.meta
    }

    /// Sets are combined only when they cover the same parameters with the same shapes; their entries then pair up in
    /// order of name.
    pub(crate) fn check_same(&self, other: &Self) -> Result<()> {
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
}
