//! Memory for the words of a mask.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Words that one task works on: 256 KiB, small enough to share out, large enough to hide the hand-over.
pub(crate) const CHUNK: usize = 32 * 1024;

/// A large page of the common systems, in bytes.
const PAGE: usize = 1 << 21;

/// Words of 64 bits. [`Words::zeroed`] takes large ones in the system's large pages.
#[derive(Debug)]
pub struct Words(Memory);

#[derive(Debug)]
enum Memory {
    Heap(Vec<u64>),
    /// Whole pages, and how many of their words are used.
    Mapped(MmapMut, usize),
}

impl Words {
    /// So many words, all zero.
    ///
    /// Where a mask fills two large pages or more, up to an eighth, it gets them (on Linux, unless it is set to have none),
    /// since new memory is brought in page by page. Smaller ones come from the allocator, which may have memory that is in
    /// already.
    pub fn zeroed(count: usize) -> Self {
        let bytes = count * size_of::<u64>();
        let whole = bytes.next_multiple_of(PAGE);
        let mapped = if bytes >= 2 * PAGE && whole - bytes <= bytes / 8 {
            MmapMut::map_anon(whole).ok()
        } else {
            None
        };
        let Some(map) = mapped else {
            return Self(Memory::Heap(vec![0; count]));
        };
        // An advice that is not taken costs time and nothing else.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Self(Memory::Mapped(map, count))
    }
}

impl PartialEq for Words {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Words {}

impl From<Vec<u64>> for Words {
    fn from(words: Vec<u64>) -> Self {
        Self(Memory::Heap(words))
    }
}

impl Clone for Words {
    fn clone(&self) -> Self {
        self.to_vec().into()
    }
}

impl Deref for Words {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        match &self.0 {
            Memory::Heap(words) => words,
            Memory::Mapped(map, count) => &bytemuck::cast_slice(map)[..*count],
        }
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u64] {
        match &mut self.0 {
            Memory::Heap(words) => words,
            Memory::Mapped(map, count) => &mut bytemuck::cast_slice_mut(map)[..*count],
        }
    }
}
