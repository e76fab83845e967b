//! Every instruction set that the machine has against plain Rust, operation by operation. Small enough for Miri:
//! `RUSTFLAGS="-Ctarget-feature=+avx2,+f16c,+popcnt" cargo +nightly miri test -p mathneuro-score --lib simd::`

use half::{bf16, f16};
use mathneuro_mask::Isa;

use super::{CODES, GROUP, Half, Kernel, Readable, Score, run};
use crate::weights::{BF16, Element, F16, F32};

/// Two groups, and what their codes are compared with.
struct Case<'c> {
    weights: &'c [u8],
    factors: (&'c Half, &'c Half),
    base: u16,
    members: &'c [bool; CODES],
}

#[derive(Debug, PartialEq)]
struct Seen {
    largest: u16,
    at_least: Vec<u64>,
    within: u64,
    places: Vec<u16>,
}

impl Kernel for &Case<'_> {
    type Output = Seen;

    #[inline(always)]
    fn run<E: Element, L: Score<E>>(self) -> Seen {
        let (first, second) = self.weights.split_at(GROUP * E::SIZE);
        let keys = L::scores(first, self.factors);
        let both = keys.max(L::scores(second, self.factors));
        let codes = keys.codes(self.base);
        let within = L::members(&codes, &L::lookup_table(self.members));
        let mut places = [0; GROUP];
        L::set_bit_positions(within, 7, &mut places);
        let levels = [0, 1, 2, 100, 127, 128, 254, 255];
        Seen {
            largest: both.largest(),
            at_least: levels
                .iter()
                .map(|&level| L::at_least(&codes, &L::threshold(level)))
                .collect(),
            within,
            places: places[..within.count_ones() as usize].to_vec(),
        }
    }
}

fn check<E: Readable>(name: &str, element: impl Fn(f32) -> Vec<u8>) {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let special = [
        0.0,
        -0.0,
        f32::MIN_POSITIVE / 4.0,
        -6e-8,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        -f32::NAN,
        65504.0,
    ];
    for round in 0..12 {
        let values = (0..2 * GROUP).map(|_| {
            let draw = next();
            match draw % 16 {
                0 if round % 3 == 0 => special[(draw / 16) as usize % special.len()],
                _ => (draw as f32 / (1 << 23) as f32 - 1.0) * 2f32.powi((draw % 5) as i32),
            }
        });
        let weights: Vec<u8> = values.flat_map(&element).collect();
        let mut half = || std::array::from_fn(|_| next() as f32 / (1 << 24) as f32);
        let factors: (Half, Half) = (half(), half());
        // About one code in two, one in sixteen, none, and all.
        let members = std::array::from_fn(|_| match round % 4 {
            0 => next() % 2 == 0,
            1 => next() % 16 == 0,
            2 => false,
            _ => true,
        });
        for base in [0, 0x3E00, 0x3F7F, 0x7F80] {
            let case = Case {
                weights: &weights,
                factors: (&factors.0, &factors.1),
                base,
                members: &members,
            };
            let expected = run::<E, _>(Isa::Portable, &case);
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let found = run::<E, _>(isa, &case);
                // Of a score that is not finite nothing matters but that it is seen; a NaN has any sign.
                if expected.largest >= 0x7F80 {
                    assert!(found.largest >= 0x7F80, "{name}, {isa}, round {round}");
                    continue;
                }
                assert_eq!(
                    found, expected,
                    "{name}, {isa}, round {round}, base {base:#x}"
                );
            }
        }
    }
}

#[test]
fn every_instruction_set_does_what_plain_rust_does() {
    check::<F32>("f32", |value| value.to_le_bytes().to_vec());
    if cfg!(miri) {
        eprintln!("f16 is left out: Miri has no conversion instructions for it");
    } else {
        check::<F16>("f16", |value| f16::from_f32(value).to_le_bytes().to_vec());
    }
    check::<BF16>("bf16", |value| bf16::from_f32(value).to_le_bytes().to_vec());
}
