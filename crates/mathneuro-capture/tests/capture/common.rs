//! Fixtures, their golden values, and changed copies of them.

use std::path::PathBuf;

use mathneuro_capture::tch::{Kind, Tensor};
use mathneuro_capture::{Batch, LoadOptions, LogitsToKeep, Model, NormRecorder};
use mathneuro_checkpoint::{Checkpoint, Dtype};
use mathneuro_score::ActivationNorms;
use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

/// A model of each family, and more of those whose configurations lead to different parts.
pub const FIXTURES: [&str; 23] = [
    "tiny-llama",
    "tiny-llama3",
    "tiny-llama-linear",
    "tiny-llama-dynamic",
    "tiny-llama-yarn",
    "tiny-mistral",
    "tiny-mixtral",
    "tiny-qwen2",
    "tiny-qwen2-window",
    "tiny-qwen3",
    "tiny-qwen3-moe",
    "tiny-gemma2",
    "tiny-gemma3",
    "tiny-phi",
    "tiny-phi3",
    "tiny-phi3-longrope",
    "tiny-gpt2",
    "tiny-gpt-neox",
    "tiny-gpt-neox-sequential",
    "tiny-olmo2",
    "tiny-stablelm",
    "tiny-stablelm2",
    "tiny-granite",
];

/// Those whose rotary embedding depends on the length of the whole text, once it exceeds 20 tokens: what a cache holds was
/// rotated for the length of its time, as in transformers.
pub const BY_LENGTH: [&str; 2] = ["tiny-llama-dynamic", "tiny-phi3-longrope"];

pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures")
        .join(name)
}

pub fn checkpoint(name: &str) -> Checkpoint {
    Checkpoint::open(fixture(name)).unwrap()
}

/// In f32, as the golden values are.
pub fn load(checkpoint: &Checkpoint) -> Model {
    Model::load(checkpoint, &LoadOptions::default().with_dtype(Dtype::F32)).unwrap()
}

pub fn model(name: &str) -> Model {
    load(&checkpoint(name))
}

pub struct Golden {
    bytes: Vec<u8>,
    pub json: Value,
}

impl Golden {
    pub fn of(name: &str) -> Self {
        let json = std::fs::read(fixture(name).join("golden.json")).unwrap();
        Self {
            bytes: std::fs::read(fixture(name).join("golden.safetensors")).unwrap(),
            json: serde_json::from_slice(&json).unwrap(),
        }
    }

    fn data(&self, name: &str) -> Vec<u8> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        file.tensor(name).unwrap().data().to_vec()
    }

    /// The token ids of all texts.
    pub fn texts(&self) -> Vec<Vec<u32>> {
        (0..self.json["texts"].as_array().unwrap().len())
            .map(|index| {
                self.data(&format!("ids.{index}"))
                    .chunks_exact(8)
                    .map(|b| i64::from_le_bytes(b.try_into().unwrap()) as u32)
                    .collect()
            })
            .collect()
    }

    /// Logits `[tokens * vocab]` of a text.
    pub fn logits(&self, index: usize) -> Vec<f32> {
        self.data(&format!("logits.{index}"))
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    }

    /// The modules that have a norm vector.
    pub fn modules(&self) -> Vec<String> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        file.names()
            .into_iter()
            .filter_map(|name| name.strip_prefix("norms.").map(str::to_owned))
            .collect()
    }

    pub fn norms(&self, module: &str) -> Vec<f64> {
        self.data(&format!("norms.{module}"))
            .chunks_exact(8)
            .map(|b| f64::from_le_bytes(b.try_into().unwrap()))
            .collect()
    }
}

/// All logits of a batch, row-major.
pub fn logits(model: &Model, batch: &Batch) -> Vec<f32> {
    flat(
        &model
            .forward(batch, None, LogitsToKeep::All)
            .unwrap()
            .unwrap(),
    )
}

pub fn flat(tensor: &Tensor) -> Vec<f32> {
    assert_eq!(tensor.kind(), Kind::Float);
    Vec::<f32>::try_from(tensor.reshape([-1])).unwrap()
}

/// The norms of some batches.
pub fn norms(model: &Model, batches: &[Batch]) -> ActivationNorms {
    let session = model.attach(NormRecorder::new(model));
    for batch in batches {
        model.forward(batch, None, LogitsToKeep::None).unwrap();
    }
    session.finish().into_norms().unwrap()
}

#[track_caller]
pub fn close(ours: &[f32], theirs: &[f32], limit: f32) {
    assert_eq!(ours.len(), theirs.len());
    let worst = ours
        .iter()
        .zip(theirs)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(worst <= limit, "deviation {worst}, allowed {limit}");
}

/// Every site of both, within a relative deviation; norms below 0.01 within that of 0.01 (where an activation cancels nearly
/// all digits).
#[track_caller]
pub fn same_norms(ours: &ActivationNorms, theirs: &ActivationNorms, limit: f64) {
    assert_eq!(ours.texts(), theirs.texts());
    assert_eq!(ours.sites().count(), theirs.sites().count());
    for ((site, a), (other, b)) in ours.sites().zip(theirs.sites()) {
        assert_eq!((site, a.tokens), (other, b.tokens));
        for (a, b) in a.norms.iter().zip(&b.norms) {
            assert!(
                (a - b).abs() <= limit * b.abs().max(0.01),
                "{site}: {a} and {b}"
            );
        }
    }
}

/// A copy of a fixture, whose files can be changed.
pub struct Copy(TempDir);

impl Copy {
    pub fn of(name: &str) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(fixture(name)).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        Self(copy)
    }

    pub fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    /// Changes `config.json`.
    pub fn config(self, change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Self {
        let path = self.0.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(config.as_object_mut().unwrap());
        std::fs::write(path, config.to_string()).unwrap();
        self
    }

    /// Writes the tensors anew: `change` may rename one, drop it, or add to the list.
    pub fn tensors(self, change: impl FnOnce(&mut Vec<Stored>)) -> Self {
        let path = self.0.path().join("model.safetensors");
        let bytes = std::fs::read(&path).unwrap();
        let mut tensors: Vec<Stored> = SafeTensors::deserialize(&bytes)
            .unwrap()
            .iter()
            .map(|(name, view)| Stored {
                name: name.to_owned(),
                dtype: view.dtype(),
                shape: view.shape().to_vec(),
                data: view.data().to_vec(),
            })
            .collect();
        change(&mut tensors);
        let views = tensors.iter().map(|tensor| {
            let shape = tensor.shape.clone();
            let view = safetensors::tensor::TensorView::new(tensor.dtype, shape, &tensor.data);
            (tensor.name.as_str(), view.unwrap())
        });
        std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
        self
    }

    pub fn open(&self) -> Checkpoint {
        Checkpoint::open(self.0.path()).unwrap()
    }

    /// What is wrong with it.
    #[track_caller]
    pub fn error(&self) -> String {
        let checkpoint = match Checkpoint::open(self.path()) {
            Ok(checkpoint) => checkpoint,
            Err(error) => return error.to_string(),
        };
        match Model::load(&checkpoint, &LoadOptions::default()) {
            Ok(_) => panic!("it was loaded"),
            Err(error) => error.to_string(),
        }
    }
}

#[derive(Clone)]
pub struct Stored {
    pub name: String,
    pub dtype: safetensors::Dtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}
