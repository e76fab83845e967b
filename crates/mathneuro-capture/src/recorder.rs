//! The norm recorder: activations become one number per feature and text, on the spot.

use std::collections::BTreeMap;
use std::ops::Range;

use mathneuro_checkpoint::Checkpoint;
use mathneuro_score::{
    ActivationNorms, Dtype, HeadRanges, Provenance, SiteNorms, TextNorms, Weights,
    accumulate_squares,
};
use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::hooks::Hook;
use crate::model::Model;

/// Records activation norms: per text the L2 norm of each input feature over the text's tokens (f32), summed over texts
/// (f64). Every text of a forward pass counts as one text. A token counts only for the experts that it was sent to; an expert
/// that saw none has norms of zero and a count of no token.
#[derive(Debug)]
pub struct NormRecorder {
    sites: BTreeMap<String, Site>,
    heads: BTreeMap<String, HeadRanges>,
    texts: u64,
    squares: Vec<f32>,
    checkpoint: Checkpoint,
}

#[derive(Debug)]
struct Site {
    weights: Vec<String>,
    norms: Vec<f64>,
    /// On a GPU sums stay there and are fetched once, at the end.
    on_device: Option<Tensor>,
    tokens: u64,
}

impl NormRecorder {
    /// A recorder for all linear layers of a model.
    pub fn new(model: &Model) -> Self {
        let mut sites: BTreeMap<String, Site> = BTreeMap::new();
        let mut heads = BTreeMap::new();
        for linear in model.linears() {
            if let Some(ranges) = linear.heads() {
                heads.insert(linear.name.clone(), ranges);
            }
            let site = sites.entry(linear.site.clone()).or_insert_with(|| Site {
                weights: Vec::new(),
                norms: vec![0.0; linear.in_features],
                on_device: None,
                tokens: 0,
            });
            site.weights.push(linear.name.clone());
        }
        Self {
            sites,
            heads,
            texts: 0,
            squares: Vec::new(),
            checkpoint: model.checkpoint().clone(),
        }
    }

    /// The norms of all texts seen, with the fingerprint of the model's checkpoint and the attention heads of its weights.
    /// The first call for a checkpoint reads it once, for the fingerprint.
    ///
    /// # Errors
    /// A norm that is NaN or infinite (the site and the feature are named), a checkpoint that cannot be read any more, or
    /// an error of libtorch.
    pub fn into_norms(self) -> Result<ActivationNorms> {
        let fingerprint = self.checkpoint.fingerprint()?;
        let provenance = Provenance::default().with_fingerprint(fingerprint);
        let mut recorded = ActivationNorms::new(provenance);
        for (name, mut site) in self.sites {
            if let Some(sums) = site.on_device {
                let sums = sums.f_to_device(Device::Cpu)?;
                for (norm, sum) in site.norms.iter_mut().zip(Vec::<f64>::try_from(&sums)?) {
                    *norm += sum;
                }
            }
            let Site {
                weights,
                norms,
                tokens,
                ..
            } = site;
            recorded.insert_site(
                name,
                SiteNorms {
                    weights,
                    norms,
                    tokens,
                },
            )?;
        }
        for (weight, heads) in self.heads {
            recorded.set_heads(&weight, heads)?;
        }
        recorded.count_texts(self.texts, 0, 0);
        Ok(recorded)
    }
}

impl Hook for NormRecorder {
    fn on_site(&mut self, name: &str, input: &Tensor, segments: &[Range<usize>]) -> Result<()> {
        let Some(site) = self.sites.get_mut(name) else {
            return Ok(());
        };
        for segment in segments {
            site.tokens += segment.len() as u64;
        }
        // An expert to which no token was sent.
        if input.numel() == 0 {
            return Ok(());
        }
        match (input.device(), dtype(input.kind())) {
            (Device::Cpu, Some(dtype)) => {
                let input = if input.is_contiguous() {
                    input.shallow_clone()
                } else {
                    input.f_contiguous()?
                };
                add_on_cpu(site, &input, dtype, segments, &mut self.squares)
            }
            _ => add_on_device(site, input, segments),
        }
    }

    fn after_batch(&mut self, segments: &[Range<usize>]) -> Result<()> {
        self.texts += segments.len() as u64;
        Ok(())
    }
}

fn dtype(kind: Kind) -> Option<Dtype> {
    match kind {
        Kind::Float => Some(Dtype::F32),
        Kind::Half => Some(Dtype::F16),
        Kind::BFloat16 => Some(Dtype::BF16),
        _ => None,
    }
}

/// Reads the tensor where it lies; no activation is copied or widened in memory.
fn add_on_cpu(
    site: &mut Site,
    input: &Tensor,
    dtype: Dtype,
    segments: &[Range<usize>],
    squares: &mut Vec<f32>,
) -> Result<()> {
    let row = site.norms.len() * dtype.bitsize() / 8;
    let bytes = input.numel() * dtype.bitsize() / 8;
    // SAFETY: the tensor is on the CPU and contiguous, so its storage holds `numel` elements of this type from its data
    // pointer on; it lives as long as `input`, which outlives the slice, and nothing writes to it meanwhile.
    let data =
        unsafe { std::slice::from_raw_parts(input.data_ptr().cast::<u8>().cast_const(), bytes) };
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        squares.clear();
        squares.resize(site.norms.len(), 0.0);
        let text = Weights::from_bytes(dtype, &data[segment.start * row..segment.end * row])?;
        accumulate_squares(text, squares)?;
        for (norm, square) in site.norms.iter_mut().zip(squares.iter()) {
            *norm += f64::from(square.sqrt());
        }
    }
    Ok(())
}

/// The same sums by libtorch, where the tensor is.
fn add_on_device(site: &mut Site, input: &Tensor, segments: &[Range<usize>]) -> Result<()> {
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        let norms = text_norms(input, segment)?.f_to_kind(Kind::Double)?;
        site.on_device = Some(match site.on_device.take() {
            Some(sums) => sums.f_add(&norms)?,
            None => norms,
        });
    }
    Ok(())
}

/// Records the norms of every text by itself, for the authors' arithmetic
/// ([`ReferenceBf16`](mathneuro_score::ReferenceBf16)): a text's L2 norm of each input feature, in f32.
#[derive(Debug)]
pub struct TextNormRecorder {
    /// The weights that read each site.
    weights: BTreeMap<String, Vec<String>>,
    norms: TextNorms,
}

impl TextNormRecorder {
    /// A recorder for all linear layers of a model.
    pub fn new(model: &Model) -> Self {
        let mut weights: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for linear in model.linears() {
            let site = weights.entry(linear.site.clone()).or_default();
            site.push(linear.name.clone());
        }
        Self {
            weights,
            norms: TextNorms::new(),
        }
    }

    /// The norms of all texts seen, in the order in which they ran.
    pub fn into_norms(self) -> TextNorms {
        self.norms
    }
}

impl Hook for TextNormRecorder {
    fn on_site(&mut self, name: &str, input: &Tensor, segments: &[Range<usize>]) -> Result<()> {
        let Some(weights) = self.weights.get(name) else {
            return Ok(());
        };
        for segment in segments {
            let norms = text_norms(input, segment)?.f_to_device(Device::Cpu)?;
            self.norms
                .push(name, weights, Vec::<f32>::try_from(&norms)?)?;
        }
        Ok(())
    }
}

/// The norms of one text by libtorch, in f32, where the tensor is.
fn text_norms(input: &Tensor, segment: &Range<usize>) -> Result<Tensor> {
    let text = input.f_narrow(0, segment.start as i64, segment.len() as i64)?;
    let squares = text.f_to_kind(Kind::Float)?.f_square()?;
    Ok(squares
        .f_sum_dim_intlist([0i64].as_slice(), false, Kind::Float)?
        .f_sqrt()?)
}
