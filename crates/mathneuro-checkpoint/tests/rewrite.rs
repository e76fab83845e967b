//! `rewrite` changes the bytes it is told to, and not one other.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::{SHARDS, bytes, entries, files, sharded, single, tensors, write};
use mathneuro_checkpoint::{Checkpoint, CheckpointError, Piece, StagedDir, rewrite};
use tempfile::tempdir;

/// Rewrites `source` into `target` and returns what was left out, in order.
fn run(
    source: &Path,
    target: &Path,
    wanted: impl Fn(&str) -> bool,
    mut edit: impl FnMut(Piece<'_>),
) -> Vec<PathBuf> {
    let checkpoint = Checkpoint::open(source).unwrap();
    let stage = StagedDir::create(target).unwrap();
    let left_out = rewrite(&checkpoint, &stage, wanted, |piece| {
        edit(piece);
        Ok::<(), CheckpointError>(())
    });
    stage.commit().unwrap();
    let mut left_out = left_out.unwrap();
    left_out.sort();
    left_out
}

/// What lies beside the weights in a usual folder.
fn others(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let others = [
        ("tokenizer.json", bytes(1000, 9)),
        ("tokenizer_config.json", b"{}".to_vec()),
        ("generation_config.json", b"{ }\n".to_vec()),
        ("README.md", b"# A model\r\n".to_vec()),
        ("LICENSE", Vec::new()),
        ("assets/deep/picture.png", bytes(300, 10)),
        ("modeling_custom.py", b"import torch\n".to_vec()),
    ];
    for (name, contents) in &others {
        write(dir, name, contents);
    }
    others
        .into_iter()
        .map(|(name, contents)| (name.into(), contents))
        .collect()
}

#[test]
fn nothing_wanted_is_a_copy() {
    for in_first in [None, Some(0), Some(2), Some(5)] {
        let (source, outer) = (tempdir().unwrap(), tempdir().unwrap());
        match in_first {
            None => single(source.path(), &tensors()),
            Some(count) => sharded(source.path(), &tensors(), count),
        }
        others(source.path());
        // An index that names one file only leaves the other unread; remove it, it holds no tensor.
        if let Some(0) = in_first {
            fs::remove_file(source.path().join(SHARDS[0])).unwrap();
        }
        if let Some(5) = in_first {
            fs::remove_file(source.path().join(SHARDS[1])).unwrap();
        }
        let target = outer.path().join("copy");
        let left_out = run(
            source.path(),
            &target,
            |_| false,
            |_| panic!("nothing was wanted"),
        );
        assert!(left_out.is_empty());
        assert_eq!(files(&target), files(source.path()));
        let (old, new) = (Checkpoint::open(source.path()), Checkpoint::open(&target));
        assert_eq!(
            old.unwrap().fingerprint().unwrap(),
            new.unwrap().fingerprint().unwrap()
        );
    }
}

#[test]
fn wanted_tensors_change_and_nothing_else_does() {
    for in_first in [1, 2, 3] {
        let (source, outer) = (tempdir().unwrap(), tempdir().unwrap());
        sharded(source.path(), &tensors(), in_first);
        others(source.path());
        let target = outer.path().join("edited");
        let mut seen = Vec::new();
        run(
            source.path(),
            &target,
            |name| name.contains("mlp") || name.contains("empty"),
            |piece| {
                assert_eq!(piece.bytes, piece.tensor.bytes());
                assert_eq!(piece.offset, 0);
                seen.push(piece.tensor.name().to_owned());
                piece.bytes.iter_mut().for_each(|byte| *byte = !*byte);
            },
        );
        // A tensor without elements has no piece.
        assert_eq!(
            seen,
            [
                "model.layers.0.mlp.down_proj.weight",
                "model.layers.0.mlp.up_proj.weight"
            ]
        );
        let (old, new) = (files(source.path()), files(&target));
        assert!(old.keys().eq(new.keys()));
        for (name, contents) in &old {
            if !name.to_string_lossy().ends_with(".safetensors") {
                assert_eq!(contents, &new[name], "{}", name.display());
            }
        }
        // The whole files, headers and all: the source's with these bytes flipped.
        let mut flipped = tensors();
        for (name, _, _, bytes) in &mut flipped {
            if name.contains("mlp") {
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        let expected = tempdir().unwrap();
        sharded(expected.path(), &flipped, in_first);
        for (name, contents) in files(expected.path()) {
            assert_eq!(new[&name], contents, "{}", name.display());
        }
        let edited = Checkpoint::open(&target).unwrap();
        for (name, _, shape, bytes) in &flipped {
            let view = edited.tensor(name).unwrap();
            assert_eq!((view.shape(), view.bytes()), (&shape[..], &bytes[..]));
        }
    }
}

/// Pieces come in order, begin at multiples of 64 elements, and cover the tensor once.
#[test]
fn large_tensors_come_in_pieces() {
    let (source, outer) = (tempdir().unwrap(), tempdir().unwrap());
    let rows = 5 << 20;
    let tensors = vec![
        ("a", "BF16", vec![3], bytes(6, 1)),
        ("big", "F32", vec![rows], bytes(4 * rows, 2)),
        ("z", "U8", vec![1], bytes(1, 3)),
    ];
    single(source.path(), &tensors);
    let target = outer.path().join("edited");
    let mut pieces = Vec::new();
    run(
        source.path(),
        &target,
        |name| name == "big",
        |piece| {
            assert_eq!(piece.tensor.bytes().len(), 4 * rows);
            let end = piece.offset + piece.bytes.len();
            assert_eq!(piece.bytes, &piece.tensor.bytes()[piece.offset..end]);
            pieces.push((piece.offset, end));
            piece.bytes[0] ^= 0xFF;
        },
    );
    assert!(pieces.len() > 1);
    assert!(pieces.iter().all(|(start, _)| start % (64 * 8) == 0));
    assert_eq!((pieces[0].0, pieces[pieces.len() - 1].1), (0, 4 * rows));
    assert!(pieces.windows(2).all(|pair| pair[0].1 == pair[1].0));
    let mut expected = files(source.path());
    let file = expected.get_mut(Path::new("model.safetensors")).unwrap();
    let start = file.len() - 1 - 4 * rows;
    for (offset, _) in pieces {
        file[start + offset] ^= 0xFF;
    }
    assert!(files(&target) == expected);
}

#[test]
fn weights_in_other_formats_and_hidden_entries_stay_behind() {
    let (source, outer) = (tempdir().unwrap(), tempdir().unwrap());
    sharded(source.path(), &tensors(), 2);
    let copied = others(source.path());
    let unedited = [
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
        "model.pt",
        "consolidated.00.pth",
        "model-q4.gguf",
        "tf_model.h5",
        "flax_model.msgpack",
        "onnx/model.onnx",
        "original/consolidated.safetensors",
        "adapter_model.safetensors",
    ];
    for name in unedited
        .iter()
        .chain(&[".gitattributes", ".git/HEAD", ".cache/x.json"])
    {
        write(source.path(), name, "x");
    }
    let target = outer.path().join("edited");
    let left_out = run(source.path(), &target, |_| false, |_| ());
    let mut expected: Vec<PathBuf> = unedited.iter().map(PathBuf::from).collect();
    expected.sort();
    assert_eq!(left_out, expected);
    let new = files(&target);
    let mut names: Vec<PathBuf> = copied.keys().cloned().collect();
    names.extend(SHARDS.map(PathBuf::from));
    names.extend(["config.json", "model.safetensors.index.json"].map(PathBuf::from));
    names.sort();
    assert!(new.keys().eq(names.iter()), "{:?}", new.keys());
    Checkpoint::open(&target).unwrap();
}

#[test]
fn shards_in_a_folder_of_their_own_stay_there() {
    let (source, outer) = (tempdir().unwrap(), tempdir().unwrap());
    write(source.path(), "config.json", common::CONFIG);
    write(
        source.path(),
        "weights/a.safetensors",
        common::shard_file(&tensors()),
    );
    let map: Vec<(&str, &str)> = tensors()
        .iter()
        .map(|t| (t.0, "weights/a.safetensors"))
        .collect();
    write(
        source.path(),
        "model.safetensors.index.json",
        common::index(&map),
    );
    let target = outer.path().join("copy");
    assert!(run(source.path(), &target, |_| true, |_| ()).is_empty());
    assert_eq!(files(&target), files(source.path()));
}

/// Links (the Hugging Face cache is made of them) become files.
#[cfg(unix)]
#[test]
fn links_become_files() {
    let (blobs, source, outer) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    single(blobs.path(), &tensors());
    others(blobs.path());
    for name in entries(blobs.path()) {
        std::os::unix::fs::symlink(blobs.path().join(&name), source.path().join(&name)).unwrap();
    }
    let target = outer.path().join("copy");
    run(source.path(), &target, |_| true, |_| ());
    assert_eq!(files(&target), files(blobs.path()));
    assert!(
        files(&target)
            .keys()
            .all(|name| !target.join(name).is_symlink())
    );
}

#[test]
fn an_edit_that_fails_is_reported_and_leaves_nothing() {
    #[derive(Debug)]
    enum Failure {
        Mine(String),
        Checkpoint,
    }
    impl From<CheckpointError> for Failure {
        fn from(_: CheckpointError) -> Self {
            Self::Checkpoint
        }
    }
    let (source, outer) = (tempdir().unwrap(), tempdir().unwrap());
    sharded(source.path(), &tensors(), 2);
    let before = files(source.path());
    let checkpoint = Checkpoint::open(source.path()).unwrap();
    let stage = StagedDir::create(outer.path().join("edited")).unwrap();
    let result = rewrite(
        &checkpoint,
        &stage,
        |_| true,
        |piece| match piece.tensor.name() {
            name if name.contains("up_proj") => Err(Failure::Mine(name.to_owned())),
            _ => Ok(()),
        },
    );
    match result {
        Err(Failure::Mine(name)) => assert!(name.contains("up_proj")),
        other => panic!("{other:?}"),
    }
    drop(stage);
    assert!(entries(outer.path()).is_empty());
    assert_eq!(files(source.path()), before);
}

/// The folder under construction may lie in the source.
#[test]
fn into_a_folder_of_the_source() {
    let source = tempdir().unwrap();
    single(source.path(), &tensors());
    let before = files(source.path());
    let target = source.path().join("edited");
    run(source.path(), &target, |_| false, |_| ());
    assert_eq!(files(&target), before);
}

/// A folder that links to itself would be copied for ever.
#[cfg(unix)]
#[test]
fn a_link_to_a_folder_around_it() {
    let (source, outer) = (tempdir().unwrap(), tempdir().unwrap());
    single(source.path(), &tensors());
    write(source.path(), "sub/deep/note.txt", "x");
    std::os::unix::fs::symlink(source.path(), source.path().join("sub/deep/up")).unwrap();
    let checkpoint = Checkpoint::open(source.path()).unwrap();
    let stage = StagedDir::create(outer.path().join("copy")).unwrap();
    let result = rewrite(&checkpoint, &stage, |_| false, |_| Ok(()));
    let message = result
        .map_err(|e: CheckpointError| e.to_string())
        .unwrap_err();
    assert!(
        message.contains("sub/deep/up: it is a link to a folder that holds it"),
        "{message}"
    );
}

/// A file that was cut short after it was opened.
#[cfg(unix)]
#[test]
fn a_source_cut_short_meanwhile() {
    let (source, outer) = (tempdir().unwrap(), tempdir().unwrap());
    single(source.path(), &tensors());
    let checkpoint = Checkpoint::open(source.path()).unwrap();
    let file = source.path().join("model.safetensors");
    let file = fs::OpenOptions::new().write(true).open(file).unwrap();
    file.set_len(100).unwrap();
    let stage = StagedDir::create(outer.path().join("copy")).unwrap();
    let result = rewrite(&checkpoint, &stage, |_| false, |_| Ok(()));
    for error in [result.unwrap_err(), checkpoint.fingerprint().unwrap_err()] {
        let message = error.to_string();
        assert!(
            message.starts_with("cannot read ") && message.contains("model.safetensors"),
            "{message}"
        );
    }
    drop(stage);
    assert!(entries(outer.path()).is_empty());
}
