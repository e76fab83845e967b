//! Masks and an edited checkpoint from activations of your own, without libtorch.
//!
//! Two ways in: norms from an `ndarray` (for example those of candle, burn or ONNX Runtime), and a safetensors file of raw
//! activations with one tensor `[tokens, in_features]` for each text and weight, named `<weight>/<text>`.
//!
//! ```sh
//! cargo run --example bring_your_own_activations -p mathneuro-core -- \
//!     MODEL_FOLDER skill.safetensors general.safetensors 0.01 OUT_FOLDER
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use mathneuro_core::score::{Provenance, SiteNorms, accumulate_squares};
use mathneuro_core::{
    ActivationNorms, CalibrationSet, Checkpoint, EditOptions, Isolator, Operation, edit_checkpoint,
    save_masks,
};
use ndarray::{Array1, ArrayView2, Axis};
use safetensors::{Dtype, SafeTensors};

/// `s[j]`: the sum over texts of the L2 norm over tokens of feature `j` (paper, section 3).
fn norms_of(texts: &[ArrayView2<'_, f32>]) -> Option<Array1<f64>> {
    let mut norms = Array1::<f64>::zeros(texts.first()?.ncols());
    for text in texts {
        let squares = text.fold_axis(Axis(0), 0f32, |sum, x| sum + x * x);
        norms += &squares.mapv(|sum| f64::from(sum.sqrt()));
    }
    Some(norms)
}

/// The norms of a file of raw activations.
fn norms_from_file(path: &Path) -> Result<ActivationNorms, Box<dyn Error>> {
    let here = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = std::fs::read(path).map_err(|error| here(&error))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| here(&error))?;
    let mut sites: BTreeMap<&str, SiteNorms> = BTreeMap::new();
    let mut texts = 0;
    for (name, tensor) in file.iter() {
        let (weight, _) = name
            .rsplit_once('/')
            .ok_or_else(|| format!("`{name}` is not named <weight>/<text>"))?;
        let (Dtype::F32, &[tokens, hidden]) = (tensor.dtype(), tensor.shape()) else {
            return Err(format!(
                "`{name}` is {:?} {:?}, an F32 tensor [tokens, in_features] is needed",
                tensor.dtype(),
                tensor.shape()
            )
            .into());
        };
        let values: Vec<f32> = tensor
            .data()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        let site = sites.entry(weight).or_insert_with(|| SiteNorms {
            weights: vec![weight.to_owned()],
            norms: vec![0.0; hidden],
            tokens: 0,
        });
        if site.norms.len() != hidden {
            let expected = site.norms.len();
            return Err(format!("`{name}` has {hidden} features, others have {expected}").into());
        }
        // The kernel that the recorder uses; `norms_of` above is the same in ndarray.
        let mut squares = vec![0f32; hidden];
        accumulate_squares(values.as_slice().into(), &mut squares)?;
        for (norm, sum) in site.norms.iter_mut().zip(squares) {
            *norm += f64::from(sum.sqrt());
        }
        site.tokens += tokens as u64;
        texts += 1;
    }
    let each = sites.len().max(1) as u64;
    let mut stats = ActivationNorms::new(Provenance::default());
    for (weight, norms) in sites {
        stats.insert_site(weight, norms)?;
    }
    stats.count_texts(texts / each, 0, 0);
    Ok(stats)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    // Norms from arrays: two texts of three and two tokens, four features.
    let (first, second) = ([0.5f32; 12], [2.0f32; 8]);
    let texts = [
        ArrayView2::from_shape((3, 4), &first)?,
        ArrayView2::from_shape((2, 4), &second)?,
    ];
    if let Some(norms) = norms_of(&texts) {
        println!("norms of two small texts: {norms:.3}");
    }

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, skill, general, k, out] = arguments.as_slice() else {
        return Err(
            "usage: MODEL_FOLDER SKILL.safetensors GENERAL.safetensors K OUT_FOLDER".into(),
        );
    };
    let checkpoint = Checkpoint::open(model)?;
    let skill = CalibrationSet::norms("skill", norms_from_file(skill.as_ref())?);
    let general = CalibrationSet::norms("general", norms_from_file(general.as_ref())?);
    let isolation = Isolator::new(&checkpoint, skill)
        .general(general)
        .ks([k.parse()?])
        .run()?;
    for set in isolation.sets() {
        println!("K = {}: {} weights isolated", set.k, set.isolated.count());
        let report = edit_checkpoint(
            &checkpoint,
            &set.isolated,
            Operation::Prune,
            out.as_ref(),
            &EditOptions::default(),
        )?;
        save_masks(
            &set.isolated,
            Path::new(out).with_extension("mask.safetensors"),
        )?;
        println!("{} weights are now zero in {out}", report.totals.changed);
    }
    Ok(())
}
