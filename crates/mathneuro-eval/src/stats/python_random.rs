//! The generator of CPython's `random` module (MT19937), so that exemplars are drawn as lm-evaluation-harness draws them.

const N: usize = 624;
const M: usize = 397;

/// `random.Random(seed)`.
#[derive(Debug, Clone)]
pub struct PythonRandom {
    state: [u32; N],
    next: usize,
}

impl PythonRandom {
    pub fn new(seed: u64) -> Self {
        let key = match (seed as u32, (seed >> 32) as u32) {
            (low, 0) => vec![low],
            (low, high) => vec![low, high],
        };
        let mut state = [0u32; N];
        state[0] = 19_650_218;
        for i in 1..N {
            state[i] = mixed(state[i - 1], 1_812_433_253).wrapping_add(i as u32);
        }
        let (mut i, mut j) = (1, 0);
        for _ in 0..N.max(key.len()) {
            state[i] = (state[i] ^ mixed(state[i - 1], 1_664_525))
                .wrapping_add(key[j])
                .wrapping_add(j as u32);
            i = wrap(&mut state, i);
            j = (j + 1) % key.len();
        }
        for _ in 0..N - 1 {
            state[i] = (state[i] ^ mixed(state[i - 1], 1_566_083_941)).wrapping_sub(i as u32);
            i = wrap(&mut state, i);
        }
        state[0] = 0x8000_0000;
        Self { state, next: N }
    }

    fn next_u32(&mut self) -> u32 {
        if self.next >= N {
            for i in 0..N {
                let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
                let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
            }
            self.next = 0;
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// `getrandbits`, for up to 64 bits.
    fn bits(&mut self, count: u32) -> u64 {
        match count {
            0 => 0,
            1..=32 => u64::from(self.next_u32() >> (32 - count)),
            _ => {
                let low = u64::from(self.next_u32());
                low | u64::from(self.next_u32() >> (64 - count)) << 32
            }
        }
    }

    /// `random()`: a number of [0, 1) with 53 bits.
    pub fn random(&mut self) -> f64 {
        let high = f64::from(self.next_u32() >> 5);
        let low = f64::from(self.next_u32() >> 6);
        (high * 67_108_864.0 + low) / 9_007_199_254_740_992.0
    }

    /// `randrange(n)`; 0 for an empty range.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            return 0;
        }
        let count = usize::BITS - n.leading_zeros();
        loop {
            let drawn = self.bits(count) as usize;
            if drawn < n {
                return drawn;
            }
        }
    }

    /// `sample(range(n), k)`; at most `n` are drawn.
    pub fn sample(&mut self, n: usize, k: usize) -> Vec<usize> {
        let k = k.min(n);
        let mut set_size = 21;
        if k > 5 {
            let power = ((3.0 * k as f64).ln() / 4f64.ln()).ceil();
            set_size += 4usize.saturating_pow(power as u32);
        }
        let mut drawn = Vec::with_capacity(k);
        if n <= set_size {
            let mut pool: Vec<usize> = (0..n).collect();
            for i in 0..k {
                let j = self.below(n - i);
                drawn.push(pool[j]);
                pool[j] = pool[n - i - 1];
            }
        } else {
            while drawn.len() < k {
                let j = self.below(n);
                if !drawn.contains(&j) {
                    drawn.push(j);
                }
            }
        }
        drawn
    }
}

fn mixed(previous: u32, factor: u32) -> u32 {
    (previous ^ (previous >> 30)).wrapping_mul(factor)
}

fn wrap(state: &mut [u32; N], i: usize) -> usize {
    if i + 1 < N {
        return i + 1;
    }
    state[0] = state[N - 1];
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_that_cpython_draws() {
        // Printed by CPython 3.11: five of randrange(1000), then samples of 5 of 4000, 5 of 20, 8 of 4000, and
        // randrange(2**35), one after another from one generator.
        for (seed, numbers, wide, narrow, longer, big) in [
            (
                0,
                [864, 394, 776, 911, 430],
                [165, 1060, 3954, 2094, 1990],
                [12, 9, 15, 11, 6],
                [2067, 570, 1154, 572, 3095, 388, 2532, 3274],
                12_464_707_851,
            ),
            (
                1234,
                [989, 796, 451, 119, 7],
                [371, 3731, 3860, 3847, 3305],
                [18, 1, 2, 3, 11],
                [969, 71, 126, 3230, 64, 1417, 2655, 2552],
                10_580_857_973,
            ),
            (
                (1 << 40) + 7,
                [628, 765, 834, 960, 967],
                [2619, 2336, 2890, 1949, 1027],
                [19, 4, 16, 12, 11],
                [1610, 1814, 1840, 3536, 3674, 1525, 923, 3450],
                33_905_665_495,
            ),
        ] {
            let mut random = PythonRandom::new(seed);
            let drawn: Vec<usize> = (0..5).map(|_| random.below(1000)).collect();
            assert_eq!(drawn, numbers);
            assert_eq!(random.sample(4000, 5), wide);
            assert_eq!(random.sample(20, 5), narrow);
            assert_eq!(random.sample(4000, 8), longer);
            assert_eq!(random.below(1 << 35), big);
        }
        // `random()` of CPython.
        for (seed, number) in [(0, 0.8444218515250481), (1, 0.13436424411240122)] {
            assert_eq!(PythonRandom::new(seed).random(), number);
        }
        assert_eq!(PythonRandom::new(1).sample(2, 5).len(), 2);
        assert_eq!(PythonRandom::new(1).below(0), 0);
    }
}
