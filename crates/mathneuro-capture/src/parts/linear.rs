//! A linear layer.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use tch::{Device, Kind, Tensor};

use crate::error::Result;

/// `x W^T + b` with `W [out, in]`; it may hold several layers that read the same input, stacked along dim 0.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(crate) weight: Tensor,
    pub(crate) bias: Option<Tensor>,
}

impl Linear {
    /// `x` is `[tokens, in]`, the result `[tokens, out]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let tokens = x.size()[0];
        if x.device() == Device::Cpu && is_few(x.kind(), tokens, &self.weight) {
            return self.few(x, tokens);
        }
        Ok(x.f_linear(&self.weight, self.bias.as_ref())?)
    }

    /// The product the other way round, `(W x^T + b)^T`: with few tokens reading the weight is all the time there is, and
    /// libtorch's CPU kernels often read it faster as the left factor.
    fn few(&self, x: &Tensor, tokens: i64) -> Result<Tensor> {
        if tokens == 1 {
            let x = x.f_squeeze_dim(0)?;
            let y = match &self.bias {
                Some(bias) => bias.f_addmv(&self.weight, &x)?,
                None => self.weight.f_mv(&x)?,
            };
            return Ok(y.f_unsqueeze(0)?);
        }
        let x = x.f_transpose(0, 1)?;
        let y = match &self.bias {
            Some(bias) => bias.f_unsqueeze(1)?.f_addmm(&self.weight, &x)?,
            None => self.weight.f_mm(&x)?,
        };
        Ok(y.f_transpose(0, 1)?.f_contiguous()?)
    }
}

/// Where the product the other way round won in measurements, of weights of 0.3 to 140 million elements: with matrix units
/// (AMX) it is nearly everywhere where there are few tokens; without (AVX-512), for bf16 only where many inputs make few
/// outputs.
fn is_few(kind: Kind, tokens: i64, weight: &Tensor) -> bool {
    let tokens = |range: RangeInclusive<i64>| range.contains(&tokens);
    match (kind, *HAS_AMX) {
        (Kind::BFloat16, true) => tokens(1..=48),
        (Kind::BFloat16, false) => {
            let size = weight.size();
            tokens(4..=64) && size[1] >= 2 * size[0]
        }
        (Kind::Float, true) => tokens(8..=32),
        (Kind::Float, false) => tokens(2..=32),
        _ => false,
    }
}

/// Whether the machine has matrix units for bf16. It decides between two ways of computing the same, never whether one may be
/// used.
static HAS_AMX: LazyLock<bool> = LazyLock::new(|| {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        // Leaf 7 lists the extended features; bit 22 of edx is AMX-BF16.
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx >> 22 & 1 == 1
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
});
