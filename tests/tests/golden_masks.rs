//! From the stored norms of an independent PyTorch program: every mask count and hash, exactly.

#![allow(clippy::unwrap_used)] // A test's helper may panic as the test itself may.

use std::collections::BTreeMap;

use mathneuro_core::{Checkpoint, ComparisonGroup, ParamMask, ScoreRule, top_k, weight_matrix};
use mathneuro_tests::{golden, golden_json, golden_norms, model, sha256};
use safetensors::SafeTensors;

#[test]
#[ignore = "needs SmolLM2-135M-Instruct (cargo xtask models)"]
fn counts_and_hashes_of_every_mask() {
    let checkpoint = Checkpoint::open(model("SmolLM2-135M-Instruct")).unwrap();
    let expected = golden_json("golden_SmolLM2-135M-Instruct.json");
    let norms_file = golden("norms_SmolLM2-135M-Instruct.safetensors");
    let norms = SafeTensors::deserialize(&norms_file).unwrap();

    let k_names: Vec<String> = expected["totals"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    let ks: Vec<f64> = k_names.iter().map(|k| k.parse().unwrap()).collect();
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    // The tied head is listed as excluded, without masks.
    let layers: Vec<_> = expected["linears"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, l)| l["k"].is_object())
        .collect();
    assert_eq!(layers.len(), 210);
    for (module, layer) in layers {
        let name = format!("{module}.weight");
        let matrix = weight_matrix(&checkpoint, &name).unwrap();
        let top = |set: &str| {
            top_k(
                &matrix,
                &golden_norms(&norms, set, module),
                &ks,
                ScoreRule::WeightTimesNorm,
                ComparisonGroup::PerMatrix,
            )
            .unwrap()
        };
        for ((k, math), general) in k_names.iter().zip(top("math")).zip(top("general")) {
            let at_k = &layer["k"][k];
            let difference = math.and_not(&general).unwrap();
            for (set, mask) in [
                ("math", &math),
                ("general", &general),
                ("diff", &difference),
            ] {
                let count = at_k[format!("n_{set}")].as_u64().unwrap();
                assert_eq!(mask.count() as u64, count, "{name} {set} K = {k}");
                let hash = at_k[format!("sha_{set}")].as_str().unwrap();
                assert_eq!(index_hash(mask), hash, "{name} {set} K = {k}");
            }
            assert_eq!(at_k["keep"].as_u64().unwrap(), math.count() as u64);
            *totals.entry(k).or_default() += difference.count() as u64;
        }
    }
    for k in &k_names {
        assert_eq!(
            totals[k.as_str()],
            expected["totals"][k]["diff"].as_u64().unwrap()
        );
    }
}

/// SHA-256 over the ascending flat indices as little-endian u64.
fn index_hash(mask: &ParamMask) -> String {
    let indices = mask
        .iter_ones()
        .flat_map(|index| (index as u64).to_le_bytes());
    sha256(indices.collect::<Vec<u8>>())
}
