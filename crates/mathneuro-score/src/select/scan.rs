//! The single pass over one chunk: bits that are certain, and the few elements that are not.

use std::ops::Range;

use mathneuro_mask::Isa;

use super::part::{INFINITE, Part, key};
use super::plan::Plan;
use crate::lanes::{self, GROUP, Half, Kernel, Score, prefetch};
use crate::weights::{Element, by_element};

/// Elements of a chunk: offsets into it fit into 16 bits, and its weights into a core's second-level cache.
pub(crate) const CHUNK: usize = 1 << 16;

/// Groups scored before they are compared with every level in turn.
const TILE: usize = 16;

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
pub(crate) struct Room {
    /// Undecided elements of each K, as offset and key.
    lists: Vec<List>,
}

#[derive(Default)]
struct List {
    /// Room for one more than can be kept.
    slots: Vec<(u16, u32)>,
    len: usize,
}

impl List {
    fn clear(&mut self, limit: usize) {
        if self.slots.len() <= limit {
            self.slots.resize(limit + 1, (0, 0));
        }
        self.len = 0;
    }

    /// Keeps an element if it is wanted; the branch would be a coin's toss.
    #[inline(always)]
    fn push(&mut self, offset: u16, key: u32, wanted: bool, limit: usize) {
        if let Some(slot) = self.slots.get_mut(self.len) {
            *slot = (offset, key);
        }
        self.len = (self.len + usize::from(wanted)).min(limit);
    }
}

/// One chunk and one statistic.
pub(crate) struct Scan<'s, 'p> {
    pub(crate) part: &'s Part<'p>,
    pub(crate) statistic: usize,
    pub(crate) range: Range<usize>,
    pub(crate) plan: &'s Plan,
    /// The bit that undecided elements get.
    pub(crate) undecided: bool,
}

impl Scan<'_, '_> {
    /// Scans and appends what is found. `planes` are the words of each K's mask; all of them are written.
    pub(crate) fn run(
        self,
        isa: Isa,
        planes: &mut [&mut [u64]],
        room: &mut Room,
        found: &mut Found,
    ) {
        let part = self.part;
        let pass = Pass {
            scan: self,
            planes,
            room,
            found,
        };
        by_element!(part, pass_with(isa, pass));
    }
}

fn pass_with<E: lanes::Readable>(isa: Isa, pass: Pass<'_, '_, '_, '_>) {
    lanes::run::<E, _>(isa, pass);
}

struct Pass<'r, 'm, 's, 'p> {
    scan: Scan<'s, 'p>,
    planes: &'r mut [&'m mut [u64]],
    room: &'r mut Room,
    found: &'r mut Found,
}

impl Kernel for Pass<'_, '_, '_, '_> {
    type Output = ();

    /// The one algorithm, inlined into a function of each instruction set.
    #[inline(always)]
    fn run<E: Element, L: Score<E>>(self) {
        let Self {
            scan,
            planes,
            room,
            found,
        } = self;
        let part = scan.part;
        let factors = &part.statistics[scan.statistic];
        let bytes = &part.weights.bytes()[scan.range.start * E::SIZE..scan.range.end * E::SIZE];
        let elements = scan.range.len();
        let words = elements.div_ceil(GROUP);
        // Bits of the last word that stand for elements.
        let valid = u64::MAX >> (words * GROUP - elements);
        let limit = (elements / UNDECIDED).max(GROUP);
        room.lists.resize_with(scan.plan.ks, List::default);
        for list in &mut room.lists {
            list.clear(limit);
        }
        for plane in &mut *planes {
            plane.fill(0);
        }
        for &k in &scan.plan.everything {
            planes[k].fill(u64::MAX);
        }
        let sets: Vec<L::Set> = scan
            .plan
            .windows
            .iter()
            .map(|window| L::set(&window.doubtful))
            .collect();

        let zero = [0u8; GROUP * 4];
        let mut halves: (Half, Half) = ([0.0; GROUP / 2], [0.0; GROUP / 2]);
        let nothing = L::scores(&zero[..GROUP * E::SIZE], (&halves.0, &halves.1));
        let mut keys = [nothing; TILE];
        let mut codes = [nothing.codes(0); TILE];
        let mut places = [0u16; TILE * GROUP + GROUP];
        let mut largest = 0;
        let mut column = scan.range.start % part.cols;
        let mut columns = [0; TILE];

        for first in (0..words).step_by(TILE) {
            let tile = TILE.min(words - first);
            // The next tile is loaded while this one is compared.
            let next = (first + TILE) * GROUP * E::SIZE;
            prefetch(&bytes[next.min(bytes.len())..bytes.len().min(next + TILE * GROUP * E::SIZE)]);
            for (word, (keys, at)) in keys[..tile].iter_mut().zip(&mut columns).enumerate() {
                let start = (first + word) * GROUP;
                *at = column;
                let group = factors.group::<E>(column, &mut halves);
                *keys = match bytes.get(start * E::SIZE..(start + GROUP) * E::SIZE) {
                    Some(bytes) => L::scores(bytes, group),
                    None => {
                        let rest = &bytes[start * E::SIZE..];
                        let mut padded = zero;
                        padded[..rest.len()].copy_from_slice(rest);
                        L::scores(&padded[..GROUP * E::SIZE], group)
                    }
                };
                column += GROUP;
                while column >= part.cols {
                    column -= part.cols;
                }
            }
            let tile_largest = keys[1..tile]
                .iter()
                .fold(keys[0], |a, &b| a.max(b))
                .largest();
            largest = largest.max(tile_largest);

            for (window, set) in scan.plan.windows.iter().zip(&sets) {
                if tile_largest < window.base {
                    continue;
                }
                let mut count = 0;
                for (word, (codes, keys)) in codes.iter_mut().zip(&keys[..tile]).enumerate() {
                    *codes = keys.codes(window.base);
                    let mut doubtful = L::within(codes, set);
                    if first + word + 1 == words {
                        doubtful &= valid;
                    }
                    if let Some(places) = places[count..].first_chunk_mut() {
                        L::places(doubtful, (word * GROUP) as u16, places);
                    }
                    count += doubtful.count_ones() as usize;
                }
                for &(k, level) in &window.dense {
                    let level = L::level(level);
                    for (word, codes) in planes[k][first..first + tile].iter_mut().zip(&codes) {
                        *word = L::at_least(codes, &level);
                    }
                }
                for &place in &places[..count] {
                    let (word, bit) = (usize::from(place) / GROUP, usize::from(place) % GROUP);
                    let offset = first * GROUP + usize::from(place);
                    let mut at = columns[word] + bit;
                    if at >= part.cols {
                        at %= part.cols;
                    }
                    let element = &bytes[offset * E::SIZE..(offset + 1) * E::SIZE];
                    let key = key(E::read(element), factors.all[at]);
                    for &(k, bracket) in window.brackets(key) {
                        let (may, is) = (key >= bracket.start, key >= bracket.end);
                        let set = is | (may & scan.undecided);
                        let word = &mut planes[k][first + word];
                        *word = *word & !(1 << bit) | u64::from(set) << bit;
                        room.lists[k].push(offset as u16, key, may & !is, limit);
                    }
                }
            }
        }

        if u32::from(largest) >= INFINITE >> 16 {
            found.infinite.get_or_insert(scan.statistic);
        }
        for plane in &mut *planes {
            if let Some(word) = plane.last_mut() {
                *word &= valid;
            }
        }
        found.close(planes, &room.lists, limit, scan.undecided);
    }
}

impl Found {
    /// Takes over the lists of one statistic's planes.
    #[inline(always)]
    fn close(&mut self, planes: &[&mut [u64]], lists: &[List], limit: usize, undecided: bool) {
        let total = lists.iter().map(|list| list.len).sum();
        self.undecided.offsets.reserve_exact(total);
        self.undecided.keys.reserve_exact(total);
        for (plane, list) in planes.iter().zip(lists) {
            let kept = &list.slots[..list.len];
            let offsets = kept.iter().map(|(offset, _)| *offset);
            self.undecided.offsets.extend(offsets);
            self.undecided.keys.extend(kept.iter().map(|(_, key)| *key));
            self.undecided.close_plane();
            let crowded = list.len == limit;
            self.crowded.push(crowded);
            let set: u64 = plane.iter().map(|word| u64::from(word.count_ones())).sum();
            let waiting = if undecided && !crowded { list.len } else { 0 };
            self.certain.push(set as usize - waiting);
        }
    }
}
