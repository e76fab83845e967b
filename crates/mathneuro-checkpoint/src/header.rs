//! The header of a safetensors file, with every rule of the format checked in one place.
//!
//! A file is 8 bytes with the header's length (little-endian), the header (a JSON object: name to type, shape and byte
//! range, and `__metadata__` with text), and the data. The ranges must cover the data without overlap, gap or rest.
//! Errors here are the reason only; the caller adds the file.

use std::ops::Range;

use safetensors::tensor::Dtype;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde_json::Value;

use crate::unique::UniqueMap;

/// The longest header that the format allows, in bytes.
const MAX_HEADER: u64 = 100_000_000;

/// One tensor of a file.
#[derive(Debug)]
pub(crate) struct TensorInfo {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Bytes in the file, counted from its start.
    pub range: Range<usize>,
}

#[derive(Deserialize)]
struct Declared {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Reads the header of a file; the tensors are in order of position.
pub(crate) fn read(file: &[u8]) -> Result<Vec<TensorInfo>, String> {
    let found = file.len();
    let Some((length, rest)) = file.split_first_chunk() else {
        return Err(format!(
            "it has {found} bytes, 8 are needed for the length of the header"
        ));
    };
    if length == b"version " {
        return Err(
            "it is a pointer of Git LFS, not the weights: fetch them with `git lfs pull`"
                .to_owned(),
        );
    }
    if length.starts_with(b"GGUF") {
        return Err("it is a GGUF file, which is not read".to_owned());
    }
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(format!(
            "its header is declared as {length} bytes, {MAX_HEADER} are allowed: truncated, or another kind of file"
        ));
    }
    // Not more than MAX_HEADER, which fits.
    let length = length as usize;
    let Some(header) = rest.get(..length) else {
        return Err(format!(
            "its header declares {length} bytes, {} follow",
            rest.len()
        ));
    };
    if header.first() != Some(&b'{') {
        return Err("its header does not begin with {".to_owned());
    }
    // `null` is what some writers leave as metadata.
    let UniqueMap::<Option<UniqueMap<Value>>>(entries) =
        serde_json::from_slice(header).map_err(|error| format!("header: {error}"))?;
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        let value = value.map(|fields| fields.0.into_iter().collect());
        let value = value.map_or(Value::Null, Value::Object);
        if name == "__metadata__" {
            check_metadata(&value)?;
        } else {
            tensors.push(tensor(name, value)?);
        }
    }
    tensors.sort_by_key(|tensor| (tensor.range.start, tensor.range.end));
    check_cover(&mut tensors, 8 + length, found)?;
    Ok(tensors)
}

fn check_metadata(value: &Value) -> Result<(), String> {
    match value {
        Value::Null => Ok(()),
        Value::Object(entries) if entries.values().all(Value::is_string) => Ok(()),
        _ => Err("`__metadata__` holds something else than text".to_owned()),
    }
}

/// One entry; its range is still counted from the start of the data.
fn tensor(name: String, value: Value) -> Result<TensorInfo, String> {
    let declared =
        Declared::deserialize(value).map_err(|error| format!("tensor {name}: {error}"))?;
    let dtype: Result<Dtype, serde::de::value::Error> =
        Dtype::deserialize(declared.dtype.as_str().into_deserializer());
    let dtype = dtype.map_err(|_| format!("tensor {name} has unknown type {}", declared.dtype))?;
    let shape: Vec<usize> = declared
        .shape
        .iter()
        .map(|&size| usize::try_from(size))
        .collect::<Result<_, _>>()
        .map_err(|_| format!("tensor {name} has shape {:?}, too large", declared.shape))?;
    let bits = shape
        .iter()
        .try_fold(dtype.bitsize(), |bits, &size| bits.checked_mul(size))
        .ok_or_else(|| format!("tensor {name} has shape {shape:?}, too large"))?;
    let (start, end) = declared.data_offsets;
    let offsets = |_| format!("tensor {name} has offsets {start} to {end}, too large");
    let range = usize::try_from(start).map_err(offsets)?..usize::try_from(end).map_err(offsets)?;
    if range.start > range.end {
        return Err(format!(
            "tensor {name} ends at {end}, before it begins at {start}"
        ));
    }
    if bits % 8 != 0 || range.len() != bits / 8 {
        return Err(format!(
            "tensor {name} has {} bytes, {dtype:?} {shape:?} needs {}",
            range.len(),
            bits.div_ceil(8),
        ));
    }
    Ok(TensorInfo {
        name,
        dtype,
        shape,
        range,
    })
}

/// Checks that the sorted ranges cover the data exactly, and moves them to the start of the file.
fn check_cover(tensors: &mut [TensorInfo], data_start: usize, file: usize) -> Result<(), String> {
    let mut end = 0;
    let mut before = "the header".to_owned();
    for tensor in tensors.iter() {
        let Range { start, end: next } = tensor.range;
        let name = &tensor.name;
        if start < end {
            return Err(format!(
                "tensor {name} begins at {start}, {before} ends at {end}: they overlap"
            ));
        }
        if start > end {
            return Err(format!(
                "tensor {name} begins at {start}, {before} ends at {end}: the bytes between belong to none"
            ));
        }
        end = next;
        before.clone_from(name);
    }
    if data_start.checked_add(end) != Some(file) {
        return Err(format!(
            "its header declares {} bytes, the file has {file}",
            data_start.saturating_add(end)
        ));
    }
    // All sums are at most the file's length, as was just checked.
    for tensor in tensors {
        tensor.range = tensor.range.start + data_start..tensor.range.end + data_start;
    }
    Ok(())
}
