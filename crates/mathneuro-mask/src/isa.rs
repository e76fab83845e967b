//! Which instruction set the kernels of this project use.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// An instruction set that the kernels have a version for. All versions give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust for any machine, and the oracle that the others are tested against.
    Portable,
    /// x86-64 with AVX2, F16C and POPCNT.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VBMI, VBMI2 and VPOPCNTDQ: Ice Lake, Zen 4, and what came after them.
    Avx512,
    /// 64-bit ARM.
    Neon,
}

/// The environment variable that forces an instruction set: `portable`, `avx2`, `avx512` or `neon`.
pub const ISA_VARIABLE: &str = "MATHNEURO_ISA";

impl Isa {
    /// All of them, the widest first.
    pub const ALL: [Self; 4] = [Self::Avx512, Self::Avx2, Self::Neon, Self::Portable];

    /// The instruction set in use: the one that the environment variable [`ISA_VARIABLE`] names, or else the widest that
    /// this machine has. Decided at the first call. A name that is unknown, or that this machine lacks, is passed over
    /// with a warning on standard error.
    pub fn active() -> Self {
        static ACTIVE: OnceLock<Isa> = OnceLock::new();
        *ACTIVE.get_or_init(|| {
            let widest = Self::ALL.into_iter().find(|isa| isa.is_available());
            let widest = widest.unwrap_or(Self::Portable);
            let Ok(wanted) = std::env::var(ISA_VARIABLE) else {
                return widest;
            };
            match wanted.parse::<Self>() {
                Ok(isa) if isa.is_available() => isa,
                _ => {
                    eprintln!(
                        "{ISA_VARIABLE}={wanted} is unknown or not on this machine; {widest} is used"
                    );
                    widest
                }
            }
        })
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vbmi")
                    && is_x86_feature_detected!("avx512vbmi2")
                    && is_x86_feature_detected!("avx512vpopcntdq")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => true,
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        })
    }
}

impl FromStr for Isa {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|isa| isa.to_string() == name)
            .ok_or_else(|| format!("{name}: portable, avx2, avx512 or neon is needed"))
    }
}
