//! One weight after the other: how an edit is defined, and what a kernel is tested against.

use half::{bf16, f16};
use mathneuro_mask::Isa;

use crate::error::{EditError, Result};
use crate::kernel::Kernel;
use crate::operation::Operation;
use crate::report::EditCounts;

/// A number format of weights.
pub(crate) trait Element<const SIZE: usize>: Copy {
    fn read(bytes: [u8; SIZE]) -> f32;
    /// Rounds to nearest, ties to even.
    fn write(value: f32) -> [u8; SIZE];
    /// The kernel of this format.
    fn kernel(_: Operation, _: Isa) -> Kernel {
        Kernel::None
    }
}

impl Element<4> for f32 {
    fn read(bytes: [u8; 4]) -> f32 {
        f32::from_le_bytes(bytes)
    }
    fn write(value: f32) -> [u8; 4] {
        value.to_le_bytes()
    }
}

impl Element<2> for f16 {
    fn read(bytes: [u8; 2]) -> f32 {
        f16::from_le_bytes(bytes).to_f32()
    }
    fn write(value: f32) -> [u8; 2] {
        f16::from_f32(value).to_le_bytes()
    }
}

impl Element<2> for bf16 {
    fn read(bytes: [u8; 2]) -> f32 {
        bf16::from_le_bytes(bytes).to_f32()
    }
    fn write(value: f32) -> [u8; 2] {
        bf16::from_f32(value).to_le_bytes()
    }
    fn kernel(operation: Operation, isa: Isa) -> Kernel {
        Kernel::of_bf16(operation, isa)
    }
}

/// What was found in the selected weights of a chunk.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) selected: usize,
    pub(crate) changed: usize,
    pub(crate) already_zero: usize,
    pub(crate) unchanged_by_rounding: usize,
    /// The smallest and the largest realised factor.
    pub(crate) least: f32,
    pub(crate) most: f32,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            selected: 0,
            changed: 0,
            already_zero: 0,
            unchanged_by_rounding: 0,
            least: f32::INFINITY,
            most: f32::NEG_INFINITY,
        }
    }
}

impl Tally {
    /// Takes a realised factor; NaN, for a weight that was zero, is passed over.
    pub(crate) fn realised(&mut self, factor: f32) {
        self.least = self.least.min(factor);
        self.most = self.most.max(factor);
    }

    /// Counts 64 weights at once: the selected ones, and among all of them those that were zero and those that changed.
    #[inline(always)]
    pub(crate) fn add(&mut self, selected: u64, zero: u64, changed: u64) {
        self.selected += selected.count_ones() as usize;
        self.already_zero += (selected & zero).count_ones() as usize;
        self.changed += (selected & changed).count_ones() as usize;
        self.unchanged_by_rounding += (selected & !zero & !changed).count_ones() as usize;
    }

    pub(crate) fn counts(&self) -> EditCounts {
        let any = self.least <= self.most;
        EditCounts {
            selected: self.selected,
            changed: self.changed,
            already_zero: self.already_zero,
            unchanged_by_rounding: self.unchanged_by_rounding,
            min_factor: any.then_some(self.least),
            max_factor: any.then_some(self.most),
            ..EditCounts::default()
        }
    }
}

/// Edits the weights of one word of the mask; `first` is the index of the first one.
pub(crate) fn edit_group<E: Element<SIZE>, const SIZE: usize>(
    operation: Operation,
    group: &mut [u8],
    word: u64,
    first: usize,
    tally: &mut Tally,
) -> Result<()> {
    let mut open = word;
    while open != 0 {
        let offset = open.trailing_zeros() as usize;
        open &= open - 1;
        let place = &mut group[offset * SIZE..(offset + 1) * SIZE];
        let index = first + offset;
        let mut old = [0; SIZE];
        old.copy_from_slice(place);
        let before = E::read(old);
        if !before.is_finite() {
            return Err(EditError::NotFinite {
                name: String::new(),
                index,
                value: before,
            });
        }
        let new = match operation {
            Operation::Prune => [0; SIZE],
            Operation::Scale(factor) => E::write(before * factor),
        };
        let after = E::read(new);
        if let (false, Operation::Scale(factor)) = (after.is_finite(), operation) {
            return Err(EditError::Overflow {
                name: String::new(),
                index,
                value: before,
                factor,
            });
        }
        place.copy_from_slice(&new);
        let (changed, zero) = (new != old, before == 0.0);
        tally.changed += usize::from(changed);
        tally.already_zero += usize::from(zero);
        tally.unchanged_by_rounding += usize::from(!changed && !zero);
        // A pruned weight has factor +0.0.
        tally.realised(after / before + 0.0);
    }
    tally.selected += word.count_ones() as usize;
    Ok(())
}
