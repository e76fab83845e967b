//! A Hugging Face folder as one set of named tensors.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use safetensors::tensor::Dtype;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{CheckpointError, Result};
use crate::folder;
use crate::shard::Shard;

/// An opened checkpoint: configuration and memory-mapped tensors.
///
/// Nothing is read into memory before it is asked for; pages that were read can be dropped again by the system, so a
/// checkpoint may be larger than memory. Files must not be changed in place while a checkpoint is open. Clones share
/// the mapping and the fingerprint once it is computed, and cost nothing.
///
/// ```
/// use mathneuro_checkpoint::{Checkpoint, Dtype};
///
/// # fn main() -> mathneuro_checkpoint::Result<()> {
/// # let folder = "../../tests/fixtures/tiny-llama";
/// let checkpoint = Checkpoint::open(folder)?;
/// let weight = checkpoint.tensor("model.layers.0.mlp.up_proj.weight")?;
/// assert_eq!(weight.dtype(), Dtype::BF16);
/// assert_eq!(weight.bytes().len(), 2 * weight.shape().iter().product::<usize>());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Checkpoint {
    inner: Arc<Inner>,
}

struct Inner {
    dir: PathBuf,
    config: Value,
    shards: Vec<Shard>,
    tensors: BTreeMap<String, Entry>,
    fingerprint: OnceLock<String>,
}

struct Entry {
    shard: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    range: Range<usize>,
}

/// One tensor, borrowed from the mapped file (or from bytes that stand in for it).
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    name: &'a str,
    dtype: Dtype,
    shape: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A tensor that is in no file: `bytes` are its elements, row-major and little-endian.
    ///
    /// # Errors
    /// [`CheckpointError::ByteCount`] when the number of bytes is not that of the shape.
    pub fn new(name: &'a str, dtype: Dtype, shape: &'a [usize], bytes: &'a [u8]) -> Result<Self> {
        let mut sizes = shape.iter();
        let bits = sizes.try_fold(dtype.bitsize(), |bits, &size| bits.checked_mul(size));
        match bits.map(|bits| bits.div_ceil(8)) {
            Some(expected) if expected == bytes.len() => Ok(Self {
                name,
                dtype,
                shape,
                bytes,
            }),
            expected => Err(CheckpointError::ByteCount {
                name: name.to_owned(),
                expected: expected.unwrap_or(usize::MAX),
                found: bytes.len(),
            }),
        }
    }

    /// The name, as in the file.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The shape; a linear weight is `[out, in]`, unless [`Checkpoint::weight_layout`] says otherwise.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The elements, row-major and little-endian. Not necessarily aligned for the element type.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The first element that is NaN or infinite, by its row-major index. `None` also for tensors of integers and of the
    /// 8-bit formats.
    pub fn first_non_finite(&self) -> Option<(usize, f64)> {
        fn find<const N: usize>(
            bytes: &[u8],
            finite: impl Fn([u8; N]) -> bool,
            value: impl Fn([u8; N]) -> f64,
        ) -> Option<(usize, f64)> {
            let (elements, _) = bytes.as_chunks::<N>();
            // Whole pieces first: that loop has no early end and is run many elements at once.
            const PIECE: usize = 4096;
            let bad = |piece: &[[u8; N]]| !piece.iter().fold(true, |all, e| all & finite(*e));
            let (number, piece) = elements
                .chunks(PIECE)
                .enumerate()
                .find(|(_, piece)| bad(piece))?;
            let index = piece.iter().position(|element| !finite(*element))?;
            Some((number * PIECE + index, value(piece[index])))
        }
        match self.dtype {
            Dtype::BF16 => find(
                self.bytes,
                |b| u16::from_le_bytes(b) & 0x7f80 != 0x7f80,
                |b| half::bf16::from_le_bytes(b).to_f64(),
            ),
            Dtype::F16 => find(
                self.bytes,
                |b| u16::from_le_bytes(b) & 0x7c00 != 0x7c00,
                |b| half::f16::from_le_bytes(b).to_f64(),
            ),
            Dtype::F32 => find(
                self.bytes,
                |b| f32::from_le_bytes(b).is_finite(),
                |b| f32::from_le_bytes(b).into(),
            ),
            Dtype::F64 => find(
                self.bytes,
                |b| f64::from_le_bytes(b).is_finite(),
                f64::from_le_bytes,
            ),
            _ => None,
        }
    }

    /// The same tensor with other bytes, for example edited ones.
    ///
    /// # Errors
    /// [`CheckpointError::ByteCount`] when the number of bytes differs.
    pub fn with_bytes(self, bytes: &'a [u8]) -> Result<Self> {
        Self::new(self.name, self.dtype, self.shape, bytes)
    }
}

impl Checkpoint {
    /// Opens a folder with `config.json` and `model.safetensors`, or `model.safetensors.index.json` and its shards.
    ///
    /// Links are followed (the cache of the Hugging Face hub is made of them).
    ///
    /// # Errors
    /// No such folder; not a checkpoint (the message says what was looked for and what is there); weights in one file
    /// and an index of others, of which transformers reads the first and vLLM the second; a missing, truncated or
    /// overlong shard; offsets that overlap or leave gaps; a name that comes twice; an index that names a tensor its
    /// shard lacks, or a shard outside the folder; a tensor in two shards or in none of the index's; invalid JSON;
    /// quantised weights.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let (shards, index) = folder::open_shards(dir)?;
        let tensors = gather(&shards, dir)?;
        if let Some(index) = index {
            index.check(&shards, |name| Some(tensors.get(name)?.shard))?;
            if let Some(name) = tensors.keys().find(|name| !index.contains(name)) {
                return Err(
                    index.error(format!("tensor {name} is in a shard but not in the index"))
                );
            }
        }
        let config = folder::read_config(dir)?;
        check_not_quantised(dir, &config, &tensors)?;
        let inner = Inner {
            dir: dir.to_owned(),
            config,
            shards,
            tensors,
            fingerprint: OnceLock::new(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// The contents of `config.json`.
    pub fn config(&self) -> &Value {
        &self.inner.config
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.inner.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.inner.tensors.contains_key(name)
    }

    /// A tensor, without copying it.
    ///
    /// # Errors
    /// [`CheckpointError::TensorNotFound`].
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>> {
        let (name, entry) = self.inner.tensors.get_key_value(name).ok_or_else(|| {
            CheckpointError::TensorNotFound {
                name: name.to_owned(),
                path: self.inner.dir.clone(),
                count: self.inner.tensors.len(),
                example: self
                    .inner
                    .tensors
                    .keys()
                    .next()
                    .cloned()
                    .unwrap_or_default(),
            }
        })?;
        Ok(self.view(name, entry))
    }

    fn view<'a>(&'a self, name: &'a str, entry: &'a Entry) -> TensorView<'a> {
        TensorView {
            name,
            dtype: entry.dtype,
            shape: &entry.shape,
            bytes: &self.inner.shards[entry.shard].bytes()[entry.range.clone()],
        }
    }

    /// Gives the memory back that reading a tensor through its view has taken: what is read through a mapping counts as
    /// the process's own until then. Views stay valid, and the next reader has the bytes from the file again. A name that
    /// is not there, or a system without such a call, is no error.
    pub fn release(&self, name: &str) {
        if let Some(entry) = self.inner.tensors.get(name) {
            self.inner.shards[entry.shard].release(entry.range.clone());
        }
    }

    /// The mapped files.
    pub fn shards(&self) -> &[Shard] {
        &self.inner.shards
    }

    /// The tensors of one shard with their byte ranges in its file, in order of position.
    pub(crate) fn tensors_of(
        &self,
        shard: usize,
    ) -> impl Iterator<Item = (TensorView<'_>, Range<usize>)> {
        let shard = &self.inner.shards[shard];
        shard.tensors().iter().map(|info| {
            let view = TensorView {
                name: &info.name,
                dtype: info.dtype,
                shape: &info.shape,
                bytes: &shard.bytes()[info.range.clone()],
            };
            (view, info.range.clone())
        })
    }

    /// Bytes of all tensors.
    pub fn total_bytes(&self) -> usize {
        // Each file was checked to be as long as its tensors, so the sum fits.
        self.inner
            .tensors
            .values()
            .map(|entry| entry.range.len())
            .sum()
    }

    /// What identifies the weights: `sha256:` and the SHA-256 over all tensors in order of name, each as its name, a
    /// zero byte and its bytes. How the tensors are spread over shards does not matter. Computed at the first call,
    /// which reads every tensor once (about a second a gigabyte); further calls, from any thread, cost nothing.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] when a file cannot be read any more, for example since it was cut short.
    pub fn fingerprint(&self) -> Result<&str> {
        if self.inner.fingerprint.get().is_none() {
            let computed = self.hash()?;
            return Ok(self.inner.fingerprint.get_or_init(|| computed));
        }
        Ok(self.inner.fingerprint.get().map_or("", String::as_str))
    }

    fn hash(&self) -> Result<String> {
        const PIECE: usize = 1 << 20;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; PIECE];
        for (name, entry) in &self.inner.tensors {
            hash.update(name.as_bytes());
            hash.update([0]);
            let Range { mut start, end } = entry.range;
            while start < end {
                let piece = &mut buffer[..PIECE.min(end - start)];
                self.inner.shards[entry.shard].read(start, piece)?;
                hash.update(&*piece);
                start += piece.len();
            }
        }
        let hex: String = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(format!("sha256:{hex}"))
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("dir", &self.inner.dir)
            .field("tensors", &self.inner.tensors.len())
            .finish_non_exhaustive()
    }
}

fn gather(shards: &[Shard], dir: &Path) -> Result<BTreeMap<String, Entry>> {
    let mut tensors: BTreeMap<String, Entry> = BTreeMap::new();
    for (shard, file) in shards.iter().enumerate() {
        for info in file.tensors() {
            let entry = Entry {
                shard,
                dtype: info.dtype,
                shape: info.shape.clone(),
                range: info.range.clone(),
            };
            if let Some(other) = tensors.insert(info.name.clone(), entry) {
                return Err(CheckpointError::InvalidIndex {
                    path: dir.to_owned(),
                    reason: format!(
                        "tensor {} is in two shards: {} and {}",
                        info.name,
                        shards[other.shard].path().display(),
                        file.path().display()
                    ),
                });
            }
        }
    }
    Ok(tensors)
}

/// Scores and edits are of real weights, not of codes into a table that stands in another tensor.
fn check_not_quantised(
    dir: &Path,
    config: &Value,
    tensors: &BTreeMap<String, Entry>,
) -> Result<()> {
    let quantised = |found: String| CheckpointError::Quantised {
        path: dir.to_owned(),
        found,
    };
    if let Some(how) = config.get("quantization_config").filter(|v| !v.is_null()) {
        let method = how.get("quant_method").and_then(Value::as_str);
        let method = method.map_or_else(String::new, |method| format!(" ({method})"));
        return Err(quantised(format!(
            "config.json has a `quantization_config`{method}"
        )));
    }
    // Older folders say it nowhere else.
    if let Some(name) = tensors.keys().find(|name| name.ends_with(".qweight")) {
        return Err(quantised(format!("it has packed weights ({name})")));
    }
    let small = |(_, entry): &(&String, &Entry)| {
        let integer = matches!(entry.dtype, Dtype::BOOL | Dtype::U8 | Dtype::I8);
        entry.dtype.bitsize() <= 8 && !integer
    };
    match tensors.iter().find(small) {
        Some((name, entry)) => Err(quantised(format!("tensor {name} is {:?}", entry.dtype))),
        None => Ok(()),
    }
}
