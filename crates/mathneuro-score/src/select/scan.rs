//! The single pass over one chunk: bits that are certain, and the few elements that are not.

use std::ops::Range;

use mathneuro_mask::Isa;

use super::matrix::{INFINITE, ScoredMatrix, key};
use super::plan::{Plan, Step, Window};
use crate::simd::{self, GROUP, Half, Kernel, Score, prefetch};
use crate::weights::{Element, by_element};

/// Elements of a chunk: offsets into it fit into 16 bits, and its weights into a core's second-level cache.
pub(crate) const CHUNK: usize = 1 << 16;

/// Groups scored before they are compared with every level in turn.
const TILE: usize = 16;

/// Groups from the one at work to the one that is asked for ahead of its use.
const PREFETCH_DISTANCE: usize = 48;

/// A plane with as many undecided elements in a chunk as this share is left to the exact way: many weights are equal.
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
    /// Offsets and keys of one plane.
    pub(crate) fn of(&self, plane: usize) -> (&[u16], &[u32]) {
        let range = self.range(plane);
        (&self.offsets[range.clone()], &self.keys[range])
    }

    pub(crate) fn keys(&self, plane: usize) -> &[u32] {
        &self.keys[self.range(plane)]
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
pub(crate) struct ChunkResult {
    /// Elements of each plane that are in for certain.
    pub(crate) certain: Vec<usize>,
    pub(crate) undecided: Undecided,
    /// Planes with too many undecided elements to keep.
    pub(crate) crowded: Vec<bool>,
    /// A statistic with a score that is not finite.
    pub(crate) infinite: Option<usize>,
}

/// What a thread needs for chunk after chunk.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Undecided elements of each K, as offset and key.
    lists: Vec<List>,
    /// The words of a tile, for each K: settled and counted before they are written to a mask, or taken out of it.
    words: Vec<[u64; TILE]>,
    /// Bits set so far, for each K.
    set: Vec<u64>,
}

#[derive(Default)]
struct List {
    /// The key, and below it 16 bits of offset.
    slots: Vec<u64>,
    len: usize,
}

impl List {
    /// Makes scratch for so many more, and one that is not kept.
    #[inline(always)]
    fn reserve(&mut self, more: usize) {
        let wanted = self.len + more + 1;
        if self.slots.len() < wanted {
            self.slots.resize(2 * wanted, 0);
        }
    }

    /// Keeps an element if it is wanted; without a branch, which would be unpredictable.
    #[inline(always)]
    fn push(&mut self, offset: u16, key: u32, wanted: bool) {
        if let Some(slot) = self.slots.get_mut(self.len) {
            *slot = u64::from(key) << 16 | u64::from(offset);
            self.len += usize::from(wanted);
        }
    }
}

/// One chunk and one statistic.
pub(crate) struct Scan<'s, 'p> {
    pub(crate) matrix: &'s ScoredMatrix<'p>,
    pub(crate) statistic: usize,
    pub(crate) range: Range<usize>,
    pub(crate) plan: &'s Plan,
    /// Whether what is in, for certain or perhaps, is written to the masks; else what is in for certain is taken out of
    /// them.
    pub(crate) write: bool,
}

impl Scan<'_, '_> {
    /// Scans and appends what is found. `planes` are the words of each K's mask; all zero.
    pub(crate) fn run(
        self,
        isa: Isa,
        planes: &mut [&mut [u64]],
        scratch: &mut Scratch,
        found: &mut ChunkResult,
    ) {
        let matrix = self.matrix;
        let pass = Pass {
            scan: self,
            planes,
            scratch,
            found,
        };
        by_element!(matrix, pass_with(isa, pass));
    }
}

fn pass_with<E: simd::Readable>(isa: Isa, pass: Pass<'_, '_, '_, '_>) {
    simd::run::<E, _>(isa, pass);
}

struct Pass<'r, 'm, 's, 'p> {
    scan: Scan<'s, 'p>,
    planes: &'r mut [&'m mut [u64]],
    scratch: &'r mut Scratch,
    found: &'r mut ChunkResult,
}

impl Kernel for Pass<'_, '_, '_, '_> {
    type Output = ();

    /// The one algorithm, inlined into a function of each instruction set.
    #[inline(always)]
    fn run<E: Element, L: Score<E>>(self) {
        let Self {
            scan,
            planes,
            scratch,
            found,
        } = self;
        let matrix = scan.matrix;
        let factors = &matrix.statistics[scan.statistic];
        let bytes = &matrix.weights.bytes()[scan.range.start * E::SIZE..scan.range.end * E::SIZE];
        let elements = scan.range.len();
        let all_words = elements.div_ceil(GROUP);
        // Bits of the last word that stand for elements.
        let valid = u64::MAX >> (all_words * GROUP - elements);
        let limit = (elements / UNDECIDED).max(GROUP);
        let ks = scan.plan.ks;
        scratch.lists.resize_with(ks, List::default);
        for list in &mut scratch.lists {
            list.len = 0;
        }
        scratch.words.resize(ks, [0; TILE]);
        scratch.set.clear();
        scratch.set.resize(ks, 0);
        let sets: Vec<L::LookupTable> = scan
            .plan
            .windows
            .iter()
            .map(|window| L::lookup_table(&window.ambiguous))
            .collect();

        let zero = [0u8; GROUP * 4];
        let mut halves: (Half, Half) = ([0.0; GROUP / 2], [0.0; GROUP / 2]);
        let nothing = L::scores(&zero[..GROUP * E::SIZE], (&halves.0, &halves.1));
        let mut keys = [nothing; TILE];
        let mut codes = [nothing.codes(0); TILE];
        let mut places = [0u16; TILE * GROUP + GROUP];
        let mut largest = 0;
        let mut column = scan.range.start % matrix.cols;
        let mut columns = [0; TILE];

        for first in (0..all_words).step_by(TILE) {
            let tile = TILE.min(all_words - first);
            let mut word = 0;
            while word < tile {
                let start = (first + word) * GROUP;
                let rest = &bytes[start * E::SIZE..];
                // As many groups as lie in this row as a whole.
                let run = factors.run::<E>(column);
                let whole = (rest.len() / (GROUP * E::SIZE)).min(tile - word);
                let whole = whole.min(run.groups);
                let groups = rest.chunks_exact(GROUP * E::SIZE).zip(run.halves());
                for (keys, (group, halves)) in keys[word..word + whole].iter_mut().zip(groups) {
                    *keys = L::scores(group, halves);
                }
                for at in &mut columns[word..word + whole] {
                    *at = column;
                    column += GROUP;
                }
                word += whole;
                if word < tile && whole == 0 {
                    // One that goes over the end of a row, or of the chunk.
                    let mut padded = zero;
                    let size = rest.len().min(GROUP * E::SIZE);
                    padded[..size].copy_from_slice(&rest[..size]);
                    let group = factors.group::<E>(column, &mut halves);
                    keys[word] = L::scores(&padded[..GROUP * E::SIZE], group);
                    columns[word] = column;
                    column += GROUP;
                    word += 1;
                }
                while column >= matrix.cols {
                    column -= matrix.cols;
                }
            }
            let tile_largest = keys[1..tile]
                .iter()
                .fold(keys[0], |a, &b| a.max(b))
                .largest();
            largest = largest.max(tile_largest);

            scratch.words.fill([0; TILE]);
            for &k in &scan.plan.everything {
                scratch.words[k].fill(u64::MAX);
            }
            for (window, set) in scan.plan.windows.iter().zip(&sets) {
                if tile_largest < window.base {
                    continue;
                }
                let mut count = 0;
                for (word, (codes, keys)) in codes.iter_mut().zip(&keys[..tile]).enumerate() {
                    let ahead = (first + word + PREFETCH_DISTANCE) * GROUP * E::SIZE;
                    if let Some(group) = bytes.get(ahead..ahead + GROUP * E::SIZE) {
                        prefetch(group);
                    }
                    *codes = keys.codes(window.base);
                    let mut ambiguous = L::members(codes, set);
                    if first + word + 1 == all_words {
                        ambiguous &= valid;
                    }
                    if let Some(places) = places[count..].first_chunk_mut() {
                        L::set_bit_positions(ambiguous, (word * GROUP) as u16, places);
                    }
                    count += ambiguous.count_ones() as usize;
                }
                for &(k, level) in &window.dense {
                    let level = L::threshold(level);
                    for (word, codes) in scratch.words[k].iter_mut().zip(&codes) {
                        *word = L::at_least(codes, &level);
                    }
                }
                let ambiguous = Ambiguous {
                    scan: &scan,
                    window,
                    bytes: &bytes[first * GROUP * E::SIZE..],
                    columns: &columns,
                    places: &places[..count],
                };
                ambiguous.resolve::<E>(first, scratch, limit);
            }
            for ((words, set), plane) in scratch
                .words
                .iter_mut()
                .zip(&mut scratch.set)
                .zip(&mut *planes)
            {
                if first + tile == all_words {
                    words[tile - 1] &= valid;
                }
                let words = &words[..tile];
                let count: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
                if count == 0 {
                    continue;
                }
                *set += count;
                let plane = &mut plane[first..first + tile];
                if scan.write {
                    plane.copy_from_slice(words);
                } else {
                    for (plane, word) in plane.iter_mut().zip(words) {
                        *plane &= !word;
                    }
                }
            }
        }

        if u32::from(largest) >= INFINITE >> 16 {
            found.infinite.get_or_insert(scan.statistic);
        }
        found.close(scratch, limit, scan.write);
    }
}

/// The elements of a tile that have to be looked at one by one.
struct Ambiguous<'d, 's, 'p> {
    scan: &'d Scan<'s, 'p>,
    window: &'d Window,
    /// The weights from the tile on.
    bytes: &'d [u8],
    /// The column of each word's first element.
    columns: &'d [usize; TILE],
    /// Their places in the tile.
    places: &'d [u16],
}

impl Ambiguous<'_, '_, '_> {
    /// Sets their bits, and keeps those that are within a bracket.
    #[inline(never)]
    fn resolve<E: Element>(&self, first: usize, scratch: &mut Scratch, limit: usize) {
        let matrix = self.scan.matrix;
        let factors = &matrix.statistics[self.scan.statistic].all[..];
        let offset = (first * GROUP) as u16;
        for list in &mut scratch.lists {
            list.len = list.len.min(limit);
            list.reserve(self.places.len());
        }
        // Few at a time: their keys do not wait for each other.
        for places in self.places.chunks(16) {
            let mut keys = [0; 16];
            for (key_of, &place) in keys.iter_mut().zip(places) {
                let place = usize::from(place);
                let mut column = self.columns[place / GROUP % TILE] + place % GROUP;
                if column >= factors.len() {
                    column %= factors.len();
                }
                let element = &self.bytes[place * E::SIZE..(place + 1) * E::SIZE];
                *key_of = key(E::read(element), factors[column]);
            }
            for (&key, &place) in keys.iter().zip(places) {
                let (word, bit) = (usize::from(place) / GROUP % TILE, place % GROUP as u16);
                // Nearly always there is one.
                for &Step { k, floor, bracket } in self.window.steps(key) {
                    if key < floor {
                        break;
                    }
                    let (may, is) = (key >= bracket.start, key >= bracket.end);
                    let set = is | (may & self.scan.write);
                    let word = &mut scratch.words[k][word];
                    *word = *word & !(1 << bit) | u64::from(set) << bit;
                    scratch.lists[k].push(offset + place, key, may & !is);
                }
            }
        }
    }
}

impl ChunkResult {
    /// Takes over the lists of one statistic's planes.
    #[inline(always)]
    fn close(&mut self, scratch: &Scratch, limit: usize, write: bool) {
        let total = scratch.lists.iter().map(|list| list.len).sum();
        self.undecided.offsets.reserve_exact(total);
        self.undecided.keys.reserve_exact(total);
        for (list, set) in scratch.lists.iter().zip(&scratch.set) {
            let kept = &list.slots[..list.len];
            let offsets = kept.iter().map(|slot| *slot as u16);
            self.undecided.offsets.extend(offsets);
            self.undecided
                .keys
                .extend(kept.iter().map(|slot| (slot >> 16) as u32));
            self.undecided.close_plane();
            let crowded = list.len >= limit;
            self.crowded.push(crowded);
            // The bits of undecided elements were set too.
            let waiting = if write && !crowded { list.len } else { 0 };
            self.certain.push(*set as usize - waiting);
        }
    }
}
