//! Inputs that the benchmarks share. Run them with `cargo bench -p mathneuro-benches`.

use mathneuro_mask::ParamMask;

/// The eight K of the paper.
pub const KS: [f64; 8] = [0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15];

/// Numbers that look random and are the same every time.
pub fn noise(count: usize) -> impl Iterator<Item = u64> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

/// About normal numbers: the sum of four uniform ones.
pub fn normal(count: usize) -> impl Iterator<Item = f32> {
    noise(count).map(|bits| {
        let sum: u64 = (0..4).map(|part| bits >> (16 * part) & 0xFFFF).sum();
        (sum as f32 / 65_536.0 - 2.0) * 0.03
    })
}

/// A mask of this density.
pub fn mask(len: usize, density: f64, offset: usize) -> ParamMask {
    let limit = (density * u64::MAX as f64) as u64;
    let bits = noise(len + offset).skip(offset).enumerate();
    ParamMask::from_indices(
        len,
        bits.filter(|(_, x)| *x < limit).map(|(index, _)| index),
    )
    .expect("the indices lie within the length")
}
