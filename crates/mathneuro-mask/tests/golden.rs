//! The mask file against one that numpy and safetensors made without this crate (`golden/make_mask.py`).

#![allow(clippy::unwrap_used)]

use mathneuro_mask::{MaskMeta, MaskSet, ParamMask, Provenance};
use safetensors::SafeTensors;

const FILE: &[u8] = include_bytes!("golden/tiny.mask.safetensors");

/// The bits that the script sets.
fn expected() -> MaskSet {
    let provenance = Provenance::default()
        .with_seed(u64::MAX)
        .with_fingerprint("sha256:00ff")
        .with_extra("rule", "weight-times-norm");
    let meta = MaskMeta::from(provenance)
        .with_k(0.15)
        .with_formula("math - (race | mmlu)");
    let mut set = MaskSet::new(meta);
    let mut add = |name: &str, shape: [usize; 2], is_set: fn(usize) -> bool| {
        let numel = shape[0] * shape[1];
        let indices = (0..numel).filter(|&index| is_set(index));
        let mask = ParamMask::from_indices(numel, indices).unwrap();
        set.insert(name, &shape, mask).unwrap();
    };
    add("model.layers.0.mlp.up_proj.weight", [3, 23], |i| i % 3 == 0);
    add("model.layers.0.mlp.down_proj.weight", [8, 8], |i| {
        (i * i) % 7 == 2
    });
    add("model.layers.0.self_attn.q_proj.weight", [5, 26], |i| {
        i >= 120
    });
    add("lm_head.weight", [1, 1], |i| i == 0);
    add("nothing", [0, 7], |_| true);
    set
}

#[test]
fn file_made_by_numpy_is_read() {
    assert_eq!(MaskSet::from_bytes(FILE).unwrap(), expected());
}

/// Apart from the order and spacing of the metadata, which safetensors leaves open, what we write is what numpy wrote.
#[test]
fn file_written_decodes_to_what_numpy_wrote() {
    let written = expected().to_bytes().unwrap();
    let (ours, theirs) = (
        SafeTensors::deserialize(&written).unwrap(),
        SafeTensors::deserialize(FILE).unwrap(),
    );
    assert_eq!(ours.len(), theirs.len());
    for (name, tensor) in theirs.iter() {
        assert_eq!(ours.tensor(name).unwrap(), tensor, "{name}");
    }
    let metadata = |bytes: &[u8]| {
        let (_, header) = SafeTensors::read_metadata(bytes).unwrap();
        let fields = header.metadata().clone().unwrap();
        let json =
            |field: &str| -> serde_json::Value { serde_json::from_str(&fields[field]).unwrap() };
        (
            fields["format"].clone(),
            fields["version"].clone(),
            json("shapes"),
            json("meta"),
            fields.len(),
        )
    };
    assert_eq!(metadata(&written), metadata(FILE));
}
