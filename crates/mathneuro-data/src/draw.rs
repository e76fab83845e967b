//! Seeded draws of calibration texts.

use rand::{RngExt, SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;

/// Indices of `count` texts out of `available`, drawn with replacement as in the paper (section 3).
///
/// The same seed gives the same draw on every machine. Nothing is drawn when there is nothing to draw from.
pub fn draw_with_replacement(available: usize, count: usize, seed: u64) -> Vec<usize> {
    if available == 0 {
        return Vec::new();
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count)
        .map(|_| rng.random_range(0..available as u64) as usize)
        .collect()
}

/// Indices of at most `count` different texts out of `available`, in the order drawn.
pub fn draw_without_replacement(available: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    index::sample(&mut rng, available, count.min(available)).into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_draw() {
        assert_eq!(
            draw_with_replacement(1000, 50, 7),
            draw_with_replacement(1000, 50, 7)
        );
        assert_ne!(
            draw_with_replacement(1000, 50, 7),
            draw_with_replacement(1000, 50, 8)
        );
    }

    #[test]
    fn without_replacement_never_repeats() {
        let mut drawn = draw_without_replacement(40, 100, 3);
        assert_eq!(drawn.len(), 40);
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 40);
    }

    #[test]
    fn nothing_to_draw_from() {
        assert!(draw_with_replacement(0, 5, 1).is_empty());
        assert!(draw_without_replacement(0, 5, 1).is_empty());
    }
}
