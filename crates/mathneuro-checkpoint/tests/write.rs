//! Safe writing: results are there complete or not at all.

// Clippy's exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use common::{bytes, entries, tensors, write};
use mathneuro_checkpoint::{Checkpoint, CheckpointError, Dtype, StagedDir, save, write_atomic};
use tempfile::tempdir;

fn occupied_by(result: Result<impl Sized, CheckpointError>, at: &Path) -> String {
    match result {
        Err(CheckpointError::Occupied { path, example }) => {
            assert_eq!(path, at);
            example
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("{} was taken for free", at.display()),
    }
}

#[test]
fn write_atomic_writes_and_replaces() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("result.json");
    for text in ["first", "a longer second text", "3"] {
        write_atomic(&path, |out| out.write_all(text.as_bytes())).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(entries(dir.path()), ["result.json"]);
    }
}

#[test]
fn write_atomic_leaves_what_was_there_when_it_fails() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("result.json");
    let fail = |out: &mut dyn Write| {
        out.write_all(&bytes(100_000, 0))?;
        Err(io::Error::other("the disk is full"))
    };
    let error = write_atomic(&path, fail).unwrap_err().to_string();
    assert!(
        error.contains("result.json") && error.contains("the disk is full"),
        "{error}"
    );
    assert!(entries(dir.path()).is_empty());
    write_atomic(&path, |out| out.write_all(b"old")).unwrap();
    write_atomic(&path, fail).unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(entries(dir.path()), ["result.json"]);
    // And when the writer panics.
    let panicked = std::panic::catch_unwind(|| write_atomic(&path, |_| panic!("a defect")));
    assert!(panicked.is_err());
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(entries(dir.path()), ["result.json"]);
}

#[test]
fn write_atomic_into_no_folder() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("missing/result.json");
    let error = write_atomic(&path, |_| Ok(())).unwrap_err().to_string();
    let (file, folder) = (path.display(), path.parent().unwrap().display());
    assert_eq!(
        error,
        format!("cannot write {file}: there is no folder {folder}")
    );
    // Over a folder.
    fs::create_dir(dir.path().join("folder")).unwrap();
    write_atomic(dir.path().join("folder"), |_| Ok(())).unwrap_err();
    assert_eq!(entries(dir.path()), ["folder"]);
}

#[cfg(unix)]
#[test]
fn results_are_readable_by_others() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = dir.path().join("file");
    write_atomic(&file, |_| Ok(())).unwrap();
    assert_eq!(mode(&file), 0o644);
    let folder = dir.path().join("folder");
    StagedDir::create(&folder).unwrap().commit().unwrap();
    assert_eq!(mode(&folder), 0o755);
}

#[test]
fn dir_writer_puts_a_folder_into_place_at_once() {
    let dir = tempdir().unwrap();
    let target = dir.path().join("deep/er/model");
    let stage = StagedDir::create(&target).unwrap();
    stage.file("a.txt", |out| out.write_all(b"a")).unwrap();
    stage
        .file("sub/folder/b.bin", |out| out.write_all(&bytes(3 << 20, 1)))
        .unwrap();
    assert!(!target.exists());
    assert!(stage.path().join("a.txt").is_file());
    stage.commit().unwrap();
    assert_eq!(entries(target.parent().unwrap()), ["model"]);
    assert_eq!(fs::read(target.join("a.txt")).unwrap(), b"a");
    assert_eq!(
        fs::read(target.join("sub/folder/b.bin")).unwrap(),
        bytes(3 << 20, 1)
    );
}

#[test]
fn dir_writer_takes_an_empty_folder() {
    let dir = tempdir().unwrap();
    let target = dir.path().join("model");
    fs::create_dir(&target).unwrap();
    let stage = StagedDir::create(&target).unwrap();
    stage.file("a", |_| Ok(())).unwrap();
    stage.commit().unwrap();
    assert_eq!(entries(&target), ["a"]);
}

#[test]
fn dir_writer_refuses_an_occupied_place() {
    let dir = tempdir().unwrap();
    let target = dir.path().join("model");
    write(&target, "precious.txt", "x");
    assert_eq!(
        occupied_by(StagedDir::create(&target), &target),
        "precious.txt"
    );
    let file = target.join("precious.txt");
    assert_eq!(occupied_by(StagedDir::create(&file), &file), "a file");
    // A hidden file is something too.
    let hidden = dir.path().join("hidden");
    write(&hidden, ".git", "x");
    assert_eq!(occupied_by(StagedDir::create(&hidden), &hidden), ".git");
    assert_eq!(entries(dir.path()), ["hidden", "model"]);
    assert_eq!(entries(&target), ["precious.txt"]);
}

#[test]
fn dir_writer_refuses_a_place_that_was_taken_meanwhile() {
    let dir = tempdir().unwrap();
    let target = dir.path().join("model");
    let stage = StagedDir::create(&target).unwrap();
    stage.file("a", |_| Ok(())).unwrap();
    write(&target, "other.txt", "x");
    assert_eq!(occupied_by(stage.commit(), &target), "other.txt");
    assert_eq!(entries(dir.path()), ["model"]);
    assert_eq!(entries(&target), ["other.txt"]);
}

#[test]
fn dir_writer_dropped_leaves_nothing() {
    let dir = tempdir().unwrap();
    let target = dir.path().join("model");
    let stage = StagedDir::create(&target).unwrap();
    stage.file("sub/a", |out| out.write_all(b"a")).unwrap();
    let failed = stage.file("b", |_| Err(io::Error::other("the disk is full")));
    let message = failed.unwrap_err().to_string();
    assert!(message.contains("the disk is full"), "{message}");
    drop(stage);
    assert!(entries(dir.path()).is_empty());
    // Nor does a panic.
    let panicked = std::panic::catch_unwind(|| {
        let _stage = StagedDir::create(&target).unwrap();
        panic!("a defect");
    });
    assert!(panicked.is_err());
    assert!(entries(dir.path()).is_empty());
}

#[test]
fn dir_writer_needs_a_name() {
    for path in ["/..", ".."] {
        let result = StagedDir::create(path);
        assert!(
            matches!(
                result,
                Err(CheckpointError::Occupied { .. } | CheckpointError::InvalidPath { .. })
            ),
            "{result:?}"
        );
    }
    let dir = tempdir().unwrap();
    let result = StagedDir::create(dir.path().join("new/.."));
    assert!(
        matches!(result, Err(CheckpointError::InvalidPath { .. })),
        "{result:?}"
    );
    write(dir.path(), "file", "x");
    let below = dir.path().join("file/model");
    assert!(matches!(
        StagedDir::create(below),
        Err(CheckpointError::Io { .. })
    ));
    assert_eq!(entries(dir.path()), ["file"]);
}

#[test]
fn save_makes_a_checkpoint() {
    let dir = tempdir().unwrap();
    let target = dir.path().join("model");
    let of_type = |name: &str| match name {
        "BF16" => Dtype::BF16,
        "F32" => Dtype::F32,
        _ => Dtype::I64,
    };
    let tensors = tensors();
    let views = || {
        tensors.iter().map(|(name, dtype, shape, bytes)| {
            (*name, of_type(dtype), shape.clone(), bytes.as_slice())
        })
    };
    let config = serde_json::json!({"model_type": "llama"});
    save(&target, &config, views()).unwrap();
    assert_eq!(entries(&target), ["config.json", "model.safetensors"]);
    let checkpoint = Checkpoint::open(&target).unwrap();
    assert_eq!(checkpoint.config(), &config);
    for (name, _, shape, bytes) in &tensors {
        let view = checkpoint.tensor(name).unwrap();
        assert_eq!((view.shape(), view.bytes()), (&shape[..], &bytes[..]));
    }
    occupied_by(save(&target, &config, views()), &target);
    let wrong = [("w", Dtype::F32, vec![2], &[0u8; 4][..])];
    let result = save(&dir.path().join("wrong"), &config, wrong);
    assert!(
        matches!(result, Err(CheckpointError::InvalidShard { .. })),
        "{result:?}"
    );
    assert_eq!(entries(dir.path()), ["model"]);
}
