//! The random control.

use mathneuro_mask::{MaskSet, ParamMask};
use rand::{SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;

/// A control for a mask set: in every matrix as many bits as there, drawn uniformly over the matrix.
///
/// What an edit of these weights does is what *any* weights of that number and place would do. A matrix's draw depends
/// only on the seed and its name: neither on other matrices nor on threads.
pub fn random_control(masks: &MaskSet, seed: u64) -> MaskSet {
    let mut meta = masks.meta().clone();
    meta.provenance.seed = Some(seed);
    meta.formula = meta
        .formula
        .map(|formula| format!("random like ({formula})"));
    let mut control = MaskSet::new(meta);
    for (name, shape, mask) in masks.iter() {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ name_hash(name));
        let drawn = index::sample(&mut rng, mask.len(), mask.count());
        let drawn =
            ParamMask::from_indices(mask.len(), drawn).expect("the draw lies within the length");
        control
            .insert(name, shape, drawn)
            .expect("names and shapes are those of a valid set");
    }
    control
}

/// FNV-1a, 64 bits: stable over versions and machines, unlike the standard library's hasher.
fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}
