//! What the recorder costs the forward pass.

use std::collections::HashMap;
use std::ops::Range;

use mathneuro_benches::{Contest, Contests, Goal, smollm2};
use mathneuro_capture::{
    Batch, CaptureError, Hook, LoadOptions, LogitsToKeep, Model, NormRecorder,
};
use mathneuro_checkpoint::{Checkpoint, Dtype};
use tch::{Kind, Tensor};

/// Texts and tokens of each.
const SHAPES: [(usize, usize); 3] = [(1, 512), (16, 128), (32, 48)];

/// The authors' way: for each text, the scores of every weight added to a tensor as large as the weight.
struct ScoreTensors(HashMap<String, Vec<(Tensor, Tensor)>>);

impl ScoreTensors {
    fn new(model: &Model, checkpoint: &Checkpoint) -> anyhow::Result<Self> {
        let mut sites: HashMap<String, Vec<(Tensor, Tensor)>> = HashMap::new();
        for linear in model.linears() {
            let view = checkpoint.tensor(&linear.name)?;
            let shape: Vec<i64> = view.shape().iter().map(|&size| size as i64).collect();
            let weight = Tensor::f_from_data_size(view.bytes(), &shape, Kind::BFloat16)?.f_abs()?;
            let scores = weight.f_zeros_like()?;
            sites
                .entry(linear.site.clone())
                .or_default()
                .push((weight, scores));
        }
        Ok(Self(sites))
    }
}

impl Hook for ScoreTensors {
    fn on_site(
        &mut self,
        site: &str,
        input: &Tensor,
        segments: &[Range<usize>],
    ) -> Result<(), CaptureError> {
        for (weight, scores) in self.0.get_mut(site).into_iter().flatten() {
            for segment in segments {
                let text = input.f_narrow(0, segment.start as i64, segment.len() as i64)?;
                let norms = text.f_norm_scalaropt_dim(2.0, [0i64].as_slice(), false)?;
                let _ = scores.f_add_(&weight.f_mul(&norms)?)?;
            }
        }
        Ok(())
    }
}

fn main() -> anyhow::Result<()> {
    let mut contests = Contests::new(
        "capture",
        "A forward pass of SmolLM2-135M in bf16 with the norm recorder attached, over so many texts of so many tokens. \
         `bare` is the pass without it; `score tensors` is the authors' way, a tensor of scores for each weight that every \
         text is added to.",
    );
    let Some(folder) = smollm2() else {
        return Ok(());
    };
    let checkpoint = Checkpoint::open(folder)?;
    let model = Model::load(&checkpoint, &LoadOptions::default().with_dtype(Dtype::BF16))?;
    for (texts, length) in SHAPES {
        let ids: Vec<Vec<u32>> = (0..texts)
            .map(|text| {
                (0..length)
                    .map(|token| ((text * 31 + token * 7) % 40_000 + 100) as u32)
                    .collect()
            })
            .collect();
        let batch = Batch::new(&ids)?;
        let pass = || model.forward(&batch, None, LogitsToKeep::None);
        let recorded = || {
            let session = model.attach(NormRecorder::new(&model));
            let result = pass();
            drop(session);
            result
        };
        let case = format!("{texts} x {length} tokens");
        contests.run(
            Contest::new(&case, 0, recorded)
                .rival("bare", Goal::TimesAtMost(1.03), pass)
                .rounds(21),
        );
        // On its own: the memory that this rival gives back is missed by whoever is next.
        contests.run(Contest::new(&case, 0, recorded).rival(
            "score tensors",
            Goal::FasterBy(1.0),
            || -> anyhow::Result<()> {
                let session = model.attach(ScoreTensors::new(&model, &checkpoint)?);
                pass()?;
                drop(session);
                Ok(())
            },
        ));
    }
    contests.finish()?;
    Ok(())
}
