//! What `Checkpoint::open` reads, and every bad input that its documentation names.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use common::{CONFIG, SHARDS, bytes, index, raw_file, shard_file, sharded, single, tensors, write};
use mathneuro_checkpoint::{Checkpoint, CheckpointError, Dtype};
use tempfile::{TempDir, tempdir};

fn error(dir: &Path) -> CheckpointError {
    match Checkpoint::open(dir) {
        Err(error) => error,
        Ok(_) => panic!("a bad checkpoint was opened"),
    }
}

/// The reason given about a shard.
fn shard_reason(dir: &Path) -> String {
    match error(dir) {
        CheckpointError::InvalidShard { path, reason } => {
            assert!(path.starts_with(dir));
            reason
        }
        other => panic!("{other:?}"),
    }
}

/// The reason given about the index.
fn index_reason(dir: &Path) -> String {
    match error(dir) {
        CheckpointError::InvalidIndex { path, reason } => {
            assert!(path.starts_with(dir));
            reason
        }
        other => panic!("{other:?}"),
    }
}

/// What is said to be in a folder that is no checkpoint.
fn found_instead(dir: &Path) -> String {
    match error(dir) {
        CheckpointError::NotACheckpoint { path, found } => {
            assert_eq!(path, dir);
            found
        }
        other => panic!("{other:?}"),
    }
}

fn bad_json(dir: &Path, file: &str) -> String {
    match error(dir) {
        CheckpointError::InvalidJson { path, reason } => {
            assert_eq!(path, dir.join(file));
            reason
        }
        other => panic!("{other:?}"),
    }
}

fn two_shards() -> TempDir {
    let dir = tempdir().unwrap();
    sharded(dir.path(), &tensors(), 2);
    dir
}

#[test]
fn one_file() {
    let dir = tempdir().unwrap();
    single(dir.path(), &tensors());
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.dir(), dir.path());
    assert_eq!(checkpoint.config()["hidden_size"], 4);
    let names: Vec<&str> = checkpoint.names().collect();
    let expected: Vec<&str> = tensors().iter().map(|tensor| tensor.0).collect();
    assert_eq!(names, expected);
    assert_eq!(checkpoint.total_bytes(), 56 + 48 + 96 + 8);
    for (name, dtype, shape, bytes) in tensors() {
        let view = checkpoint.tensor(name).unwrap();
        assert!(checkpoint.contains(name));
        assert_eq!(view.name(), name);
        assert_eq!(format!("{:?}", view.dtype()), dtype);
        assert_eq!(view.shape(), shape);
        assert_eq!(view.bytes(), bytes);
    }
    assert_eq!(checkpoint.shards().len(), 1);
    assert_eq!(
        checkpoint.shards()[0].path(),
        dir.path().join("model.safetensors")
    );
}

#[test]
fn two_files() {
    let dir = two_shards();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    for (name, _, shape, bytes) in tensors() {
        let view = checkpoint.tensor(name).unwrap();
        assert_eq!((view.shape(), view.bytes()), (&shape[..], &bytes[..]));
    }
    let paths: Vec<_> = checkpoint
        .shards()
        .iter()
        .map(|shard| shard.path().to_owned())
        .collect();
    assert_eq!(paths, SHARDS.map(|file| dir.path().join(file)));
}

#[test]
fn shards_in_a_folder_of_their_own() {
    let dir = tempdir().unwrap();
    write(dir.path(), "config.json", CONFIG);
    write(dir.path(), "weights/a.safetensors", shard_file(&tensors()));
    let map: Vec<(&str, &str)> = tensors()
        .iter()
        .map(|t| (t.0, "weights/a.safetensors"))
        .collect();
    write(dir.path(), "model.safetensors.index.json", index(&map));
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.names().count(), 5);
}

/// The Hugging Face cache keeps the files elsewhere and links to them.
#[cfg(unix)]
#[test]
fn linked_files() {
    let (blobs, dir) = (two_shards(), tempdir().unwrap());
    for (at, name) in common::entries(blobs.path()).iter().enumerate() {
        let blob = blobs.path().join(format!("{at:08x}"));
        fs::rename(blobs.path().join(name), &blob).unwrap();
        std::os::unix::fs::symlink(blob, dir.path().join(name)).unwrap();
    }
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(
        checkpoint.tensor("model.steps").unwrap().bytes(),
        bytes(8, 4)
    );
}

#[test]
fn no_such_folder() {
    let dir = tempdir().unwrap();
    let missing = dir.path().join("missing");
    assert!(matches!(error(&missing), CheckpointError::DirNotFound(path) if path == missing));
    write(dir.path(), "file", "x");
    let file = dir.path().join("file");
    assert!(matches!(error(&file), CheckpointError::DirNotFound(path) if path == file));
}

#[test]
fn folders_that_are_no_checkpoint_say_what_they_are() {
    for (files, expected) in [
        (&[][..], "it is empty"),
        (
            &["config.json", "pytorch_model.bin"],
            "only pickled weights (pytorch_model.bin)",
        ),
        (&["model.pt"], "only pickled weights (model.pt)"),
        (
            &["consolidated.00.pth"],
            "only pickled weights (consolidated.00.pth)",
        ),
        (&["model-q4.gguf"], "GGUF weights (model-q4.gguf)"),
        (
            &["config.json", "model-00001-of-00002.safetensors"],
            "it has model-00001-of-00002.safetensors, but no index",
        ),
        (
            &["b.txt", "a.txt"],
            "it has 2 entries and no weights, for example a.txt",
        ),
    ] {
        let dir = tempdir().unwrap();
        for file in files {
            write(dir.path(), file, "x");
        }
        let found = found_instead(dir.path());
        assert!(found.contains(expected), "{found} / {expected}");
        let message = error(dir.path()).to_string();
        assert!(
            message.contains(&found) && message.contains("model.safetensors"),
            "{message}"
        );
    }
}

#[test]
fn a_missing_shard() {
    let dir = two_shards();
    fs::remove_file(dir.path().join(SHARDS[1])).unwrap();
    assert_eq!(
        index_reason(dir.path()),
        format!("shard {} is missing", SHARDS[1])
    );
}

#[test]
fn a_truncated_shard() {
    let whole = shard_file(&tensors());
    let dir = tempdir().unwrap();
    single(dir.path(), &tensors());
    for len in [0, 1, 7, 8, 9, 100, whole.len() - 9, whole.len() - 1] {
        write(dir.path(), "model.safetensors", &whole[..len]);
        let reason = shard_reason(dir.path());
        assert!(!reason.is_empty());
        if len > 600 {
            assert_eq!(
                reason,
                format!(
                    "its header declares {} bytes, the file has {len}",
                    whole.len()
                )
            );
        }
    }
}

#[test]
fn an_overlong_shard() {
    let dir = two_shards();
    let mut whole = fs::read(dir.path().join(SHARDS[0])).unwrap();
    let declared = whole.len();
    whole.extend([0; 3]);
    write(dir.path(), SHARDS[0], &whole);
    let found = whole.len();
    assert_eq!(
        shard_reason(dir.path()),
        format!("its header declares {declared} bytes, the file has {found}")
    );
}

/// A header of tensors of 2^60 bytes each, one after the other as far as the numbers go.
fn huge_tensors(count: u64) -> String {
    let entries: Vec<String> = (0..count)
        .map(|i| {
            let (start, end) = (i << 60, (i + 1).saturating_mul(1 << 60));
            let size = end - start;
            format!(r#""t{i:02}":{{"dtype":"U8","shape":[{size}],"data_offsets":[{start},{end}]}}"#)
        })
        .collect();
    format!("{{{}}}", entries.join(","))
}

/// Messages name the tensor, what was found and what is needed.
#[test]
fn broken_headers_are_explained() {
    let dir = tempdir().unwrap();
    single(dir.path(), &tensors());
    for (header, data, reason) in [
        (
            r#"{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,10]}}"#,
            10,
            "tensor w has 10 bytes, BF16 [2, 3] needs 12",
        ),
        (
            r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}}"#,
            10,
            "tensor b begins at 6, a ends at 8: they overlap",
        ),
        (
            r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}}"#,
            10,
            "tensor b begins at 9, a ends at 8: the bytes between belong to none",
        ),
        (
            r#"{"w":{"dtype":"Q4_K","shape":[1],"data_offsets":[0,1]}}"#,
            1,
            "tensor w has unknown type Q4_K",
        ),
        (
            r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#,
            1,
            "header: w is there twice",
        ),
    ] {
        write(
            dir.path(),
            "model.safetensors",
            raw_file(header, &bytes(data, 0)),
        );
        let found = shard_reason(dir.path());
        assert!(found.starts_with(reason), "{found} / {reason}");
    }
}

/// What other writers leave and readers accept: `null` as metadata, tensors in any order, spaces at the end.
#[test]
fn unusual_headers() {
    let dir = tempdir().unwrap();
    single(dir.path(), &tensors());
    let header = r#"{"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"__metadata__":null,
        "a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}}   "#;
    write(
        dir.path(),
        "model.safetensors",
        raw_file(header, &[1, 2, 3, 4, 5, 6]),
    );
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.tensor("a").unwrap().bytes(), [1, 2, 3, 4]);
    assert_eq!(checkpoint.tensor("b").unwrap().bytes(), [5, 6]);
    write(dir.path(), "model.safetensors", raw_file("{}", &[]));
    assert_eq!(Checkpoint::open(dir.path()).unwrap().total_bytes(), 0);
}

#[test]
fn several_missing_shards_are_listed() {
    let dir = two_shards();
    for file in SHARDS {
        fs::remove_file(dir.path().join(file)).unwrap();
    }
    assert_eq!(
        index_reason(dir.path()),
        format!("2 of 2 shards are missing: {}", SHARDS.join(", "))
    );
}

/// transformers would load the one, vLLM the others.
#[test]
fn one_file_and_an_index_of_others() {
    let dir = two_shards();
    write(dir.path(), "model.safetensors", shard_file(&tensors()));
    let message = error(dir.path()).to_string();
    assert!(message.contains("remove one of them"), "{message}");
    // An index of that one file is no contradiction.
    let map: Vec<(&str, &str)> = tensors()
        .iter()
        .map(|t| (t.0, "model.safetensors"))
        .collect();
    write(dir.path(), "model.safetensors.index.json", index(&map));
    assert_eq!(Checkpoint::open(dir.path()).unwrap().shards().len(), 1);
}

#[test]
fn quantised_weights() {
    let dir = tempdir().unwrap();
    let quantised = |expected: &str| match error(dir.path()) {
        CheckpointError::Quantised { found, .. } => assert_eq!(found, expected),
        other => panic!("{other}"),
    };
    single(dir.path(), &[("w", "F8_E4M3", vec![2, 2], bytes(4, 0))]);
    quantised("tensor w is F8_E4M3");
    single(dir.path(), &[("w", "F4", vec![2, 2], bytes(2, 0))]);
    quantised("tensor w is F4");
    // Codes in plain integers: the configuration says what they are, or a name that has become usual.
    single(dir.path(), &[("w.qweight", "I32", vec![1], bytes(4, 0))]);
    let config = r#"{"quantization_config": {"quant_method": "gptq", "bits": 4}}"#;
    write(dir.path(), "config.json", config);
    quantised("config.json has a `quantization_config` (gptq)");
    write(dir.path(), "config.json", r#"{"quantization_config": {}}"#);
    quantised("config.json has a `quantization_config`");
    write(
        dir.path(),
        "config.json",
        r#"{"quantization_config": null}"#,
    );
    quantised("it has packed weights (w.qweight)");
    // Integers and booleans alone are buffers of usual models.
    single(dir.path(), &[("ids", "I32", vec![1], bytes(4, 0))]);
    Checkpoint::open(dir.path()).unwrap();
    single(dir.path(), &[("attn.bias", "BOOL", vec![4], vec![0; 4])]);
    Checkpoint::open(dir.path()).unwrap();
}

#[test]
fn an_index_with_a_name_that_is_there_twice() {
    let dir = two_shards();
    let text = format!(r#"{{"weight_map": {{"a": "{0}", "a": "{0}"}}}}"#, SHARDS[0]);
    write(dir.path(), "model.safetensors.index.json", text);
    let reason = index_reason(dir.path());
    assert!(reason.starts_with("a is there twice"), "{reason}");
}

#[test]
fn broken_headers() {
    let tensor = |shape: &str, start: u64, end: u64| {
        format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[{start},{end}]}}"#)
    };
    let dir = tempdir().unwrap();
    single(dir.path(), &tensors());
    for (what, header, data) in [
        (
            "overlap",
            format!(
                r#"{{"a":{},"b":{}}}"#,
                tensor("[2]", 0, 8),
                tensor("[2]", 4, 12)
            ),
            12,
        ),
        (
            "the same place",
            format!(
                r#"{{"a":{},"b":{}}}"#,
                tensor("[2]", 0, 8),
                tensor("[2]", 0, 8)
            ),
            8,
        ),
        (
            "a gap",
            format!(
                r#"{{"a":{},"b":{}}}"#,
                tensor("[1]", 0, 4),
                tensor("[1]", 8, 12)
            ),
            12,
        ),
        (
            "a gap at the start",
            format!(r#"{{"a":{}}}"#, tensor("[1]", 4, 8)),
            8,
        ),
        (
            "backwards",
            format!(r#"{{"a":{}}}"#, tensor("[1]", 4, 0)),
            4,
        ),
        (
            "too few bytes for the shape",
            format!(r#"{{"a":{}}}"#, tensor("[2]", 0, 4)),
            4,
        ),
        (
            "too many bytes for the shape",
            format!(r#"{{"a":{}}}"#, tensor("[2]", 0, 12)),
            12,
        ),
        (
            "a shape that overflows",
            format!(r#"{{"a":{}}}"#, tensor("[4294967296,4294967296,4]", 0, 0)),
            0,
        ),
        (
            "past the end",
            format!(r#"{{"a":{}}}"#, tensor("[4]", 0, 16)),
            8,
        ),
        (
            "a name that is there twice, with the same place",
            format!(r#"{{"a":{0},"a":{0}}}"#, tensor("[1]", 0, 4)),
            4,
        ),
        (
            "offsets that are there twice",
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8],"data_offsets":[0,4]}}"#
                .to_owned(),
            4,
        ),
        (
            "metadata that are there twice",
            r#"{"__metadata__":{"a":"x"},"__metadata__":{"a":"y"}}"#.to_owned(),
            0,
        ),
        (
            "metadata that are no text",
            r#"{"__metadata__":{"a":1}}"#.to_owned(),
            0,
        ),
        (
            "negative sizes",
            r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#.to_owned(),
            4,
        ),
        (
            "no shape",
            r#"{"a":{"dtype":"F32","data_offsets":[0,4]}}"#.to_owned(),
            4,
        ),
        (
            "half a byte",
            r#"{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}"#.to_owned(),
            1,
        ),
        // Each fits; their sum does not.
        ("a sum that overflows", huge_tensors(16), 8),
        (
            "space before the header",
            format!(r#" {{"a":{}}}"#, tensor("[1]", 0, 4)),
            4,
        ),
        ("no JSON", "{".to_owned(), 0),
        ("no object", "[]".to_owned(), 0),
        (
            "no such type",
            r#"{"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}"#.to_owned(),
            4,
        ),
    ] {
        write(
            dir.path(),
            "model.safetensors",
            raw_file(&header, &bytes(data, 0)),
        );
        let result = Checkpoint::open(dir.path());
        assert!(
            matches!(&result, Err(CheckpointError::InvalidShard { path, .. }) if path.ends_with("model.safetensors")),
            "{what}: {result:?}"
        );
    }
    // A length of the header beyond any file.
    write(dir.path(), "model.safetensors", u64::MAX.to_le_bytes());
    shard_reason(dir.path());
    write(
        dir.path(),
        "model.safetensors",
        "PK\u{3}\u{4} this is a zip file, not safetensors",
    );
    shard_reason(dir.path());
}

#[test]
fn an_index_that_names_what_is_not_there() {
    let dir = two_shards();
    let mut map: Vec<(&str, &str)> = tensors()
        .iter()
        .enumerate()
        .map(|(i, tensor)| (tensor.0, SHARDS[usize::from(i >= 2)]))
        .collect();
    map.push(("lm_head.weight", SHARDS[0]));
    write(dir.path(), "model.safetensors.index.json", index(&map));
    assert_eq!(
        index_reason(dir.path()),
        format!("tensor lm_head.weight is not in its shard {}", SHARDS[0])
    );
    // There, but in the other shard.
    map.pop();
    map[0].1 = SHARDS[1];
    write(dir.path(), "model.safetensors.index.json", index(&map));
    assert_eq!(
        index_reason(dir.path()),
        format!(
            "tensor model.embed_tokens.weight is not in its shard {}",
            SHARDS[1]
        )
    );
    // In a shard, but not in the index.
    map.remove(0);
    write(dir.path(), "model.safetensors.index.json", index(&map));
    assert_eq!(
        index_reason(dir.path()),
        "tensor model.embed_tokens.weight is in a shard but not in the index"
    );
}

#[test]
fn a_shard_outside_the_folder() {
    let outer = tempdir().unwrap();
    let dir = outer.path().join("model");
    fs::create_dir(&dir).unwrap();
    sharded(&dir, &tensors(), 2);
    write(outer.path(), "evil.safetensors", shard_file(&tensors()));
    let absolute = outer.path().join("evil.safetensors").display().to_string();
    for file in [
        "../evil.safetensors",
        "sub/../../evil.safetensors",
        &absolute,
        "..\\evil.safetensors",
        "..",
        "",
    ] {
        let map: Vec<(&str, &str)> = tensors().iter().map(|tensor| (tensor.0, file)).collect();
        write(&dir, "model.safetensors.index.json", index(&map));
        assert_eq!(
            index_reason(&dir),
            format!("shard path `{file}` leaves the folder")
        );
    }
}

#[test]
fn a_tensor_in_two_shards() {
    let dir = two_shards();
    write(dir.path(), SHARDS[1], shard_file(&tensors()[1..]));
    let reason = index_reason(dir.path());
    assert!(
        reason.starts_with("tensor model.layers.0.mlp.down_proj.weight is in two shards: "),
        "{reason}"
    );
    assert!(
        reason.contains(SHARDS[0]) && reason.contains(SHARDS[1]),
        "{reason}"
    );
}

#[test]
fn an_index_that_is_none() {
    let dir = two_shards();
    let name = "model.safetensors.index.json";
    for text in ["", "{", "\u{0}"] {
        write(dir.path(), name, text);
        bad_json(dir.path(), name);
    }
    for (text, reason) in [
        ("[]", "`weight_map` is missing or not an object"),
        ("{}", "`weight_map` is missing or not an object"),
        (
            r#"{"weight_map": []}"#,
            "`weight_map` is missing or not an object",
        ),
        (r#"{"weight_map": {}}"#, "`weight_map` names no tensor"),
        (
            r#"{"weight_map": {"a": 1}}"#,
            "`weight_map` holds something else than file names",
        ),
    ] {
        write(dir.path(), name, text);
        assert_eq!(index_reason(dir.path()), reason);
    }
}

#[test]
fn a_configuration_that_is_none() {
    let dir = tempdir().unwrap();
    single(dir.path(), &tensors());
    for text in ["", "{\"a\":", "{} {}"] {
        write(dir.path(), "config.json", text);
        bad_json(dir.path(), "config.json");
    }
    for text in ["[]", "null", "3"] {
        write(dir.path(), "config.json", text);
        assert_eq!(bad_json(dir.path(), "config.json"), "an object is needed");
    }
    fs::remove_file(dir.path().join("config.json")).unwrap();
    let message = error(dir.path()).to_string();
    assert!(message.contains("has no config.json"), "{message}");
    // Opening a pipe would wait for ever; a folder stands for all that is no file.
    fs::create_dir(dir.path().join("config.json")).unwrap();
    assert_eq!(bad_json(dir.path(), "config.json"), "it is not a file");
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_not_taken_for_a_file_that_never_was() {
    for name in [
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
    ] {
        for target in ["/nowhere/at/all", name] {
            let dir = tempdir().unwrap();
            single(dir.path(), &tensors());
            write(dir.path(), "config.json", "{}");
            let _ = fs::remove_file(dir.path().join(name));
            std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
            let mut message = error(dir.path()).to_string();
            let mut cause = std::error::Error::source(&error(dir.path())).map(ToString::to_string);
            message.push_str(&cause.take().unwrap_or_default());
            let wanted = format!("it is a symbolic link to {target}, which leads nowhere");
            assert!(
                message.contains(&wanted) && message.contains(name),
                "{message}"
            );
        }
    }
}

#[test]
fn other_files_under_the_name_of_weights_are_named() {
    let dir = tempdir().unwrap();
    write(dir.path(), "config.json", "\u{feff}{}");
    for (bytes, wanted) in [
        (
            &b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"[..],
            "Git LFS",
        ),
        (b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0", "GGUF"),
    ] {
        fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
        let message = error(dir.path()).to_string();
        assert!(message.contains(wanted), "{message}");
    }
    // A mark of the encoding does not matter.
    single(dir.path(), &tensors());
    write(dir.path(), "config.json", "\u{feff}{}");
    Checkpoint::open(dir.path()).unwrap();
}

#[test]
fn no_such_tensor() {
    let dir = two_shards();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert!(!checkpoint.contains("lm_head.weight"));
    let message = checkpoint.tensor("lm_head.weight").unwrap_err().to_string();
    for part in ["lm_head.weight", "5 tensors", "model.embed_tokens.weight"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_view_with_other_bytes() {
    let dir = two_shards();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let view = checkpoint.tensor("model.steps").unwrap();
    let other = [7; 8];
    let changed = view.with_bytes(&other).unwrap();
    assert_eq!(
        (changed.name(), changed.dtype(), changed.bytes()),
        ("model.steps", Dtype::I64, &other[..])
    );
    let refused = view.with_bytes(&other[1..]);
    assert!(matches!(
        refused,
        Err(CheckpointError::ByteCount {
            expected: 8,
            found: 7,
            ..
        })
    ));
}

/// The same weights have the same fingerprint, however they are spread over files and ordered in them.
#[test]
fn fingerprint_does_not_depend_on_sharding() {
    let fingerprint = |dir: &Path| {
        let checkpoint = Checkpoint::open(dir).unwrap();
        assert_eq!(
            checkpoint.fingerprint().unwrap(),
            checkpoint.fingerprint().unwrap()
        );
        checkpoint.fingerprint().unwrap().to_owned()
    };
    let dir = tempdir().unwrap();
    single(dir.path(), &tensors());
    let expected = fingerprint(dir.path());
    let hex = expected.strip_prefix("sha256:").unwrap();
    assert!(
        hex.len() == 64 && hex.bytes().all(|c| c.is_ascii_hexdigit()),
        "{expected}"
    );
    for in_first in 0..=5 {
        let dir = tempdir().unwrap();
        sharded(dir.path(), &tensors(), in_first);
        if in_first == 0 || in_first == 5 {
            // The index names one file only; the other is not read.
            assert_eq!(Checkpoint::open(dir.path()).unwrap().shards().len(), 1);
        }
        assert_eq!(fingerprint(dir.path()), expected);
    }
    let mut reversed = tensors();
    reversed.reverse();
    let dir = tempdir().unwrap();
    single(dir.path(), &reversed);
    assert_eq!(fingerprint(dir.path()), expected);
    // The configuration is no weight.
    write(dir.path(), "config.json", "{}");
    assert_eq!(fingerprint(dir.path()), expected);
    // One bit of one tensor, or a name, is another fingerprint.
    let mut changed = tensors();
    changed[4].3[7] ^= 1;
    single(dir.path(), &changed);
    assert_ne!(fingerprint(dir.path()), expected);
    let mut renamed = tensors();
    renamed[4].0 = "model.steps2";
    single(dir.path(), &renamed);
    assert_ne!(fingerprint(dir.path()), expected);
}

/// Computed by hand: `printf 'a\0\001\002\003\004b\0\005' | sha256sum`.
#[test]
fn fingerprint_is_the_documented_hash() {
    let dir = tempdir().unwrap();
    single(
        dir.path(),
        &[
            ("b", "U8", vec![1], vec![5]),
            ("a", "F32", vec![1], vec![1, 2, 3, 4]),
        ],
    );
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(
        checkpoint.fingerprint().unwrap(),
        "sha256:84230cfc2be16e4318b5c0866eee10046d3bd7d325349b77acb2fef5cebe52b8"
    );
}

#[test]
fn the_first_number_that_is_none_is_found_in_every_format() {
    use mathneuro_checkpoint::Dtype;
    let dir = tempfile::tempdir().unwrap();
    let (count, at) = (10_000, 9_000);
    let ones = |bytes: &[u8]| bytes.repeat(count);
    let cases = [
        (Dtype::BF16, ones(&[0x80, 0x3f]), vec![0x80, 0xff]),
        (Dtype::F16, ones(&[0x00, 0x3c]), vec![0x00, 0x7c]),
        (
            Dtype::F32,
            ones(&1f32.to_le_bytes()),
            f32::NAN.to_le_bytes().to_vec(),
        ),
        (
            Dtype::F64,
            ones(&1f64.to_le_bytes()),
            f64::INFINITY.to_le_bytes().to_vec(),
        ),
        (Dtype::I64, ones(&i64::MAX.to_le_bytes()), vec![0xff; 8]),
    ];
    for (dtype, whole, bad) in cases {
        let name = format!("{dtype:?}");
        for damaged in [false, true] {
            let mut bytes = whole.clone();
            if damaged {
                let size = bad.len();
                bytes[at * size..(at + 1) * size].copy_from_slice(&bad);
            }
            let view = safetensors::tensor::TensorView::new(dtype, vec![count], &bytes).unwrap();
            let file = safetensors::serialize([(name.clone(), view)], None).unwrap();
            fs::write(dir.path().join("model.safetensors"), file).unwrap();
            write(dir.path(), "config.json", "{}");
            let checkpoint = Checkpoint::open(dir.path()).unwrap();
            let found = checkpoint.tensor(&name).unwrap().first_non_finite();
            let expected = (damaged && dtype != Dtype::I64).then_some(at);
            assert_eq!(found.map(|(index, _)| index), expected, "{name}");
            assert!(found.is_none_or(|(_, value)| !value.is_finite()), "{name}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn released_tensors_take_no_memory_and_views_of_them_stay_valid() {
    fn mapped(dir: &Path) -> u64 {
        let status = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut ours = false;
        let mut kilobytes = 0;
        for line in status.lines() {
            if line.contains(&*dir.to_string_lossy()) {
                ours = true;
            } else if ours && let Some(size) = line.strip_prefix("Rss:") {
                kilobytes += size
                    .trim()
                    .trim_end_matches("kB")
                    .trim()
                    .parse::<u64>()
                    .unwrap();
                ours = false;
            }
        }
        kilobytes
    }
    let dir = tempdir().unwrap();
    let large: Vec<common::Tensor> =
        vec![("a.weight", "BF16", vec![1024, 2048], bytes(1 << 22, 3))];
    single(dir.path(), &large);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let view = checkpoint.tensor("a.weight").unwrap();
    assert_eq!(view.bytes(), large[0].3);
    assert!(mapped(dir.path()) >= 4096, "{} kB", mapped(dir.path()));
    checkpoint.release("a.weight");
    checkpoint.release("no such tensor");
    assert!(mapped(dir.path()) <= 64, "{} kB", mapped(dir.path()));
    assert_eq!(view.bytes(), large[0].3);
}

#[test]
fn clones_share_the_mapping_and_the_fingerprint() {
    let dir = tempdir().unwrap();
    single(dir.path(), &[("a.weight", "BF16", vec![2], bytes(4, 3))]);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let clone = checkpoint.clone();
    let computed = clone.fingerprint().unwrap();
    assert!(std::ptr::eq(checkpoint.fingerprint().unwrap(), computed));
    let bytes = |checkpoint: &Checkpoint| checkpoint.tensor("a.weight").unwrap().bytes().as_ptr();
    assert_eq!(bytes(&checkpoint), bytes(&clone));
    drop(checkpoint);
    assert_eq!(clone.tensor("a.weight").unwrap().shape(), [2]);
    // Short: an operation that holds a checkpoint is shown in messages.
    let shown = format!("{clone:?}");
    assert!(shown.contains("tensors: 1") && shown.len() < 200, "{shown}");
}
