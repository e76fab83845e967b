//! The single pass over one chunk: bits that are certain, and the few elements that are not.

use std::ops::Range;

use mathneuro_mask::Isa;

use super::part::{INFINITE, Part, key};
use super::sample::Bracket;
use crate::lanes::portable::Portable;
use crate::lanes::{GROUP, Half, Lanes, prefetch};
use crate::weights::{Element, by_element};

/// Elements of a chunk: offsets into it fit into 16 bits, and its weights into a core's second-level cache.
pub(crate) const CHUNK: usize = 1 << 16;

/// Groups scored before they are compared with every threshold in turn.
const TILE: usize = 16;

/// A plane with more undecided elements in a chunk than this share is left to the exact way: many weights are equal.
const UNDECIDED: usize = 8;

/// The elements of a chunk that lie within a bracket, in ascending order, plane after plane.
#[derive(Default)]
pub(crate) struct Undecided {
    offsets: Vec<u16>,
    keys: Vec<u32>,
    /// Where each plane's end.
    ends: Vec<u32>,
}

impl Undecided {
    /// Offset and key of each element of one plane.
    pub(crate) fn of(&self, plane: usize) -> impl Iterator<Item = (usize, u32)> + '_ {
        let range = self.range(plane);
        let offsets = self.offsets[range.clone()].iter();
        offsets
            .zip(&self.keys[range])
            .map(|(&offset, &key)| (usize::from(offset), key))
    }

    pub(crate) fn keys(&self, plane: usize) -> &[u32] {
        &self.keys[self.range(plane)]
    }

    pub(crate) fn keys_mut(&mut self, plane: usize) -> impl Iterator<Item = (usize, &mut u32)> {
        let range = self.range(plane);
        let offsets = self.offsets[range.clone()].iter();
        offsets
            .zip(&mut self.keys[range])
            .map(|(&offset, key)| (usize::from(offset), key))
    }

    fn range(&self, plane: usize) -> Range<usize> {
        let start = plane.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[plane] as usize
    }

    fn close_plane(&mut self) {
        self.ends.push(self.keys.len() as u32);
    }
}

/// What was found in a chunk beside the bits.
#[derive(Default)]
pub(crate) struct Found {
    /// Set bits of each plane.
    pub(crate) certain: Vec<usize>,
    pub(crate) undecided: Undecided,
    /// Planes with too many undecided elements to keep.
    pub(crate) crowded: Vec<bool>,
    /// A statistic with a score that is not finite.
    pub(crate) infinite: Option<usize>,
}

/// Scans a chunk for one statistic and appends what is found. `planes` are the words of each bracket's mask; all of them
/// are written.
pub(crate) fn scan(
    isa: Isa,
    part: &Part<'_>,
    statistic: usize,
    range: Range<usize>,
    brackets: &[Bracket],
    planes: &mut [&mut [u64]],
    found: &mut Found,
) {
    let job = Job {
        part,
        statistic,
        range,
        brackets,
    };
    by_element!(part, on(isa, &job, planes, found));
}

struct Job<'j, 'p> {
    part: &'j Part<'p>,
    statistic: usize,
    range: Range<usize>,
    brackets: &'j [Bracket],
}

/// A type that every kernel can read.
trait Readable: Element {
    fn run(isa: Isa, job: &Job<'_, '_>, planes: &mut [&mut [u64]], found: &mut Found);
}

fn on<E: Readable>(isa: Isa, job: &Job<'_, '_>, planes: &mut [&mut [u64]], found: &mut Found) {
    E::run(isa, job, planes, found);
}

impl<E: Element> Readable for crate::weights::Finite<E> {
    fn run(_: Isa, job: &Job<'_, '_>, planes: &mut [&mut [u64]], found: &mut Found) {
        scan_with::<Self, Portable>(job, planes, found);
    }
}

macro_rules! readable {
    ($($element:ty),*) => {$(
        impl Readable for $element {
            fn run(isa: Isa, job: &Job<'_, '_>, planes: &mut [&mut [u64]], found: &mut Found) {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 if isa.is_available() => {
                        // SAFETY: AVX-512 F, BW and VPOPCNTDQ were just detected.
                        unsafe { scan_avx512::<Self>(job, planes, found) }
                    }
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 if isa.is_available() => {
                        // SAFETY: AVX2, F16C and POPCNT were just detected.
                        unsafe { scan_avx2::<Self>(job, planes, found) }
                    }
                    #[cfg(target_arch = "aarch64")]
                    Isa::Neon => scan_with::<Self, crate::lanes::neon::Neon>(job, planes, found),
                    _ => scan_with::<Self, Portable>(job, planes, found),
                }
            }
        }
    )*};
}
readable!(
    crate::weights::F32,
    crate::weights::F16,
    crate::weights::BF16
);

/// # Safety
/// The machine must have AVX-512 F, BW and VPOPCNTDQ, and POPCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq,popcnt")]
unsafe fn scan_avx512<E: Element>(job: &Job<'_, '_>, planes: &mut [&mut [u64]], found: &mut Found)
where
    crate::lanes::avx512::Avx512: Lanes<E>,
{
    scan_with::<E, crate::lanes::avx512::Avx512>(job, planes, found);
}

/// # Safety
/// The machine must have AVX2, F16C and POPCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,popcnt")]
unsafe fn scan_avx2<E: Element>(job: &Job<'_, '_>, planes: &mut [&mut [u64]], found: &mut Found)
where
    crate::lanes::avx2::Avx2: Lanes<E>,
{
    scan_with::<E, crate::lanes::avx2::Avx2>(job, planes, found);
}

/// The one algorithm, inlined into a function of each instruction set.
#[inline(always)]
fn scan_with<E: Element, L: Lanes<E>>(
    job: &Job<'_, '_>,
    planes: &mut [&mut [u64]],
    found: &mut Found,
) {
    let thresholds: Vec<(L::Threshold, L::Threshold)> = job
        .brackets
        .iter()
        .map(|bracket| {
            let (may, is) = halves(*bracket);
            (L::threshold(may), L::threshold(is))
        })
        .collect();
    let factors = &job.part.statistics[job.statistic];
    let bytes = &job.part.weights.bytes()[job.range.start * E::SIZE..job.range.end * E::SIZE];
    let elements = job.range.len();
    let words = elements.div_ceil(GROUP);
    let limit = (elements / UNDECIDED).max(GROUP);
    // Offsets and keys of each plane; they are put one after the other at the end.
    let mut undecided: Vec<Vec<(u16, u32)>> = vec![Vec::with_capacity(256); planes.len()];
    let mut crowded = vec![false; planes.len()];
    let zero = [0u8; GROUP * 4];
    let mut room: (Half, Half) = ([0.0; GROUP / 2], [0.0; GROUP / 2]);
    let mut keys = [L::scores(&zero[..GROUP * E::SIZE], (&room.0, &room.1)); TILE];
    let mut largest = 0;
    let mut column = job.range.start % job.part.cols;
    let mut columns = [0; TILE];

    for first in (0..words).step_by(TILE) {
        let tile = TILE.min(words - first);
        // The next tile is loaded while this one is compared.
        let next = (first + TILE) * GROUP * E::SIZE;
        prefetch(&bytes[next.min(bytes.len())..bytes.len().min(next + TILE * GROUP * E::SIZE)]);
        // Bits of the tile's last word that stand for elements.
        let mut valid = u64::MAX;
        for (word, (keys, at)) in keys[..tile].iter_mut().zip(&mut columns).enumerate() {
            let start = (first + word) * GROUP;
            *at = column;
            let group = factors.group::<E>(column, &mut room);
            *keys = match bytes.get(start * E::SIZE..(start + GROUP) * E::SIZE) {
                Some(bytes) => L::scores(bytes, group),
                None => {
                    let rest = &bytes[start * E::SIZE..];
                    valid = u64::MAX >> (GROUP - rest.len() / E::SIZE);
                    let mut padded = zero;
                    padded[..rest.len()].copy_from_slice(rest);
                    L::scores(&padded[..GROUP * E::SIZE], group)
                }
            };
            column += GROUP;
            while column >= job.part.cols {
                column -= job.part.cols;
            }
        }
        let tile_largest = keys[1..tile]
            .iter()
            .fold(keys[0], |a, &b| a.max(b))
            .largest();
        largest = largest.max(tile_largest);

        for (k, (plane, (may, is))) in planes.iter_mut().zip(&thresholds).enumerate() {
            let plane = &mut plane[first..first + tile];
            let bracket = job.brackets[k];
            if tile_largest < (bracket.start >> 16) as u16 {
                plane.fill(0);
                continue;
            }
            let mut within = [0u64; TILE];
            let mut any = 0;
            for ((word, keys), within) in plane.iter_mut().zip(&keys).zip(&mut within) {
                *word = keys.above(is);
                *within = keys.above(may) & !*word;
                any |= *within;
            }
            plane[tile - 1] &= valid;
            within[tile - 1] &= valid;
            if any == 0 || crowded[k] {
                continue;
            }
            let list = &mut undecided[k];
            for (index, mut bits) in within[..tile].iter().copied().enumerate() {
                while bits != 0 {
                    let bit = bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    let offset = (first + index) * GROUP + bit;
                    let element = &bytes[offset * E::SIZE..(offset + 1) * E::SIZE];
                    let mut at = columns[index] + bit;
                    while at >= job.part.cols {
                        at -= job.part.cols;
                    }
                    let key = key(E::read(element), factors.all[at]);
                    if key >= bracket.end {
                        plane[index] |= 1 << bit;
                    } else if key >= bracket.start {
                        list.push((offset as u16, key));
                    }
                }
            }
            if list.len() > limit {
                crowded[k] = true;
                list.clear();
            }
        }
    }

    if u32::from(largest) >= INFINITE >> 16 {
        found.infinite.get_or_insert(job.statistic);
    }
    let total = undecided.iter().map(Vec::len).sum();
    found.undecided.offsets.reserve_exact(total);
    found.undecided.keys.reserve_exact(total);
    for (plane, list) in planes.iter().zip(undecided) {
        let count = plane.iter().map(|word| u64::from(word.count_ones()));
        found.certain.push(count.sum::<u64>() as usize);
        found
            .undecided
            .offsets
            .extend(list.iter().map(|(offset, _)| *offset));
        found
            .undecided
            .keys
            .extend(list.iter().map(|(_, key)| *key));
        found.undecided.close_plane();
    }
    found.crowded.extend(crowded);
}

/// A score may be in the top K when its upper half is above the first number, and is when it is above the second.
fn halves(bracket: Bracket) -> (i16, i16) {
    let is = bracket
        .end
        .checked_sub(1)
        .map_or(-1, |last| (last >> 16) as i16);
    let may = if bracket.start == bracket.end {
        is
    } else {
        (bracket.start >> 16) as i16 - 1
    };
    (may, is)
}
