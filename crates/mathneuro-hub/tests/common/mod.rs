//! A hub that runs in the test: the routes and headers of the real one, on a port of its own, and every fault a
//! network can have. Large files are on a second port, as they are on another host in reality.

#![allow(dead_code, clippy::unwrap_used)] // Each test binary uses a part; a helper may panic as a test may.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mathneuro_hub::{Hub, HubOptions};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What goes wrong with a file, and how often.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// This many bytes of an answer, then the connection closes.
    Cut(usize),
    /// A status instead of an answer.
    Status(u16),
    /// One byte of it changed.
    Flip,
    /// The whole file, whatever range is asked for.
    NoRange,
}

#[derive(Clone, Default)]
pub struct Repo {
    pub files: Vec<(String, Vec<u8>, bool)>,
    pub gated: bool,
    pub revisions: Vec<String>,
    pub moved_to: Option<String>,
}

impl Repo {
    /// A repository with small files in git.
    pub fn new(files: &[(&str, &[u8])]) -> Self {
        let files = files.iter().map(|(name, bytes)| {
            // As on the hub, large kinds of files are stored by their SHA-256.
            let large = [".safetensors", ".parquet", ".bin", "tokenizer.json"];
            let is_large = large.iter().any(|ending| name.ends_with(ending));
            ((*name).to_owned(), bytes.to_vec(), is_large)
        });
        Self {
            files: files.collect(),
            revisions: vec!["main".to_owned(), COMMIT.to_owned()],
            ..Self::default()
        }
    }
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub range: Option<String>,
    pub token: Option<String>,
}

#[derive(Default)]
struct State {
    /// By route prefix: `org/name` or `datasets/org/name`.
    repos: HashMap<String, Repo>,
    /// By file name (or `api` for the listing): what goes wrong, and how often it still does.
    faults: HashMap<String, (Fault, usize)>,
    requests: Vec<Request>,
    token: Option<String>,
    store: String,
}

#[derive(Clone)]
pub struct StandIn {
    pub endpoint: String,
    state: Arc<Mutex<State>>,
}

pub fn hex_sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

pub fn etag(bytes: &[u8], large: bool) -> String {
    let mut etag = hex_sha256(bytes);
    if !large {
        etag.truncate(40);
    }
    etag
}

impl StandIn {
    pub fn start() -> Self {
        let hub = TcpListener::bind("127.0.0.1:0").unwrap();
        let store = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = Arc::new(Mutex::new(State {
            store: format!("http://localhost:{}", store.local_addr().unwrap().port()),
            ..State::default()
        }));
        let endpoint = format!("http://127.0.0.1:{}", hub.local_addr().unwrap().port());
        for (listener, is_store) in [(hub, false), (store, true)] {
            let state = state.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let state = state.clone();
                    std::thread::spawn(move || answer(stream, &state, is_store));
                }
            });
        }
        Self { endpoint, state }
    }

    pub fn with(self, route: &str, repo: Repo) -> Self {
        self.put(route, repo);
        self
    }

    pub fn put(&self, route: &str, repo: Repo) {
        self.state
            .lock()
            .unwrap()
            .repos
            .insert(route.to_owned(), repo);
    }

    pub fn fail(&self, file: &str, fault: Fault, times: usize) {
        let mut state = self.state.lock().unwrap();
        state.faults.insert(file.to_owned(), (fault, times));
    }

    pub fn accept_token(&self, token: &str) {
        self.state.lock().unwrap().token = Some(token.to_owned());
    }

    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }

    /// Options with a cache in this folder; nothing comes from the environment.
    pub fn options(&self, home: &Path) -> HubOptions {
        let mut options = HubOptions::new(home);
        options.endpoint = self.endpoint.clone();
        options.retry_wait = Duration::from_millis(1);
        options
    }

    pub fn hub(&self, home: &Path) -> Hub {
        Hub::new(self.options(home)).unwrap()
    }
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    fn error(status: u16, code: &str) -> Self {
        let mut answer = Self::new(status).header("X-Error-Code", code);
        answer.body = json!({"error": code}).to_string().into_bytes();
        answer
    }

    fn json(value: &Value) -> Self {
        let mut answer = Self::new(200).header("Content-Type", "application/json");
        answer.body = value.to_string().into_bytes();
        answer
    }
}

fn answer(stream: TcpStream, state: &Mutex<State>, is_store: bool) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let mut request = Request {
        method,
        path,
        range: None,
        token: None,
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "range" => request.range = Some(value.to_owned()),
            "authorization" => request.token = value.strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    let mut state = state.lock().unwrap();
    state.requests.push(request.clone());
    let (answer, fault) = respond(&mut state, &request, is_store);
    drop(state);
    send(stream, &request, answer, fault);
}

fn send(mut stream: TcpStream, request: &Request, answer: Answer, fault: Option<Fault>) {
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !answer
        .headers
        .iter()
        .any(|(name, _)| name == "Content-Length")
    {
        head.push_str(&format!("Content-Length: {}\r\n", answer.body.len()));
    }
    head.push_str("\r\n");
    let mut body = answer.body;
    match fault {
        Some(Fault::Flip) => body[0] ^= 1,
        Some(Fault::Cut(length)) => body.truncate(length),
        _ => {}
    }
    let _ = stream.write_all(head.as_bytes());
    if request.method != "HEAD" {
        let _ = stream.write_all(&body);
    }
}

/// Takes one of a name's faults; single bytes are asked for to learn the size, and never spoilt.
fn fault(state: &mut State, name: &str, request: &Request) -> Option<Fault> {
    let probe = request.range.as_deref() == Some("bytes=0-0") || request.method == "HEAD";
    let (fault, times) = state.faults.get_mut(name)?;
    if *times == 0 || (probe && !matches!(fault, Fault::Status(_))) {
        return None;
    }
    *times -= 1;
    Some(*fault)
}

fn respond(state: &mut State, request: &Request, is_store: bool) -> (Answer, Option<Fault>) {
    let path = request
        .path
        .split('?')
        .next()
        .unwrap()
        .trim_start_matches('/')
        .to_owned();
    if is_store {
        // /name/hash
        let (name, hash) = path.split_once('/').unwrap();
        let fault = fault(state, name, request);
        if let Some(Fault::Status(status)) = fault {
            return (Answer::new(status), None);
        }
        let mut files = state.repos.values().flat_map(|repo| &repo.files);
        let (_, bytes, _) = files
            .find(|(_, bytes, _)| hex_sha256(bytes) == hash)
            .unwrap();
        return (
            contents(bytes, request, fault).header("ETag", "\"of-the-store\""),
            fault,
        );
    }
    if let Some(rest) = path.strip_prefix("api/") {
        if let Some(Fault::Status(status)) = fault(state, "api", request) {
            return (Answer::new(status), None);
        }
        let rest = rest.strip_prefix("models/").unwrap_or(rest);
        if let Some((route, _)) = rest.split_once("/tree/") {
            return (tree(state, route), None);
        }
        let (route, revision) = rest.split_once("/revision/").unwrap_or((rest, "main"));
        return (
            listing(state, route, &revision.replace("%2F", "/"), request),
            None,
        );
    }
    let Some((route, rest)) = path.split_once("/resolve/") else {
        return (Answer::error(404, "RepoNotFound"), None);
    };
    let (revision, file) = rest.split_once('/').unwrap();
    // A large file is only pointed to from here: what goes wrong with its bytes goes wrong in the store.
    let mut files = state.repos.values().flat_map(|repo| &repo.files);
    let is_large = files.any(|(name, _, large)| name == file && *large);
    let planned = state.faults.get(file).map(|(fault, _)| *fault);
    let fault = match planned {
        Some(Fault::Status(_)) => fault(state, file, request),
        Some(_) if !is_large => fault(state, file, request),
        _ => None,
    };
    if let Some(Fault::Status(status)) = fault {
        return (Answer::new(status), None);
    }
    (
        resolve(
            state,
            route,
            &revision.replace("%2F", "/"),
            file,
            request,
            fault,
        ),
        fault,
    )
}

fn allowed(state: &State, repo: &Repo, request: &Request) -> Result<(), Answer> {
    match (&request.token, &state.token) {
        _ if !repo.gated => Ok(()),
        (Some(given), Some(right)) if given == right => Ok(()),
        (None, _) => Err(Answer::error(401, "GatedRepo")),
        _ => Err(Answer::error(403, "GatedRepo")),
    }
}

fn listing(state: &State, route: &str, revision: &str, request: &Request) -> Answer {
    let Some(repo) = state.repos.get(route) else {
        // To those without a token, the hub does not say whether there is such a repository.
        let status = if request.token.is_some() { 404 } else { 401 };
        return Answer::error(status, "RepoNotFound");
    };
    if let Some(target) = &repo.moved_to {
        let location = format!("/api/models/{target}/revision/{revision}?blobs=true");
        return Answer::new(307).header("Location", location);
    }
    if !repo.revisions.iter().any(|known| known == revision) {
        return Answer::error(404, "RevisionNotFound");
    }
    let siblings: Vec<Value> = repo
        .files
        .iter()
        .map(|(name, bytes, large)| {
            let mut entry =
                json!({"rfilename": name, "size": bytes.len(), "blobId": etag(bytes, false)});
            if *large {
                entry["lfs"] =
                    json!({"sha256": hex_sha256(bytes), "size": bytes.len(), "pointerSize": 130});
            }
            entry
        })
        .collect();
    let gated = if repo.gated {
        json!("manual")
    } else {
        json!(false)
    };
    Answer::json(&json!({
        "id": route, "modelId": route, "sha": COMMIT, "private": false, "disabled": false, "downloads": 0, "likes": 0,
        "tags": [], "gated": gated, "siblings": siblings,
    }))
}

/// The route that Python's client lists files by.
fn tree(state: &State, route: &str) -> Answer {
    let Some(repo) = state.repos.get(route) else {
        return Answer::error(404, "RepoNotFound");
    };
    let entries: Vec<Value> = repo
        .files
        .iter()
        .map(|(name, bytes, large)| {
            let mut entry = json!({
                "type": "file", "path": name, "size": bytes.len(), "oid": etag(bytes, false),
            });
            if *large {
                entry["lfs"] =
                    json!({"oid": hex_sha256(bytes), "size": bytes.len(), "pointerSize": 130});
            }
            entry
        })
        .collect();
    Answer::json(&Value::Array(entries))
}

fn resolve(
    state: &State,
    route: &str,
    revision: &str,
    file: &str,
    request: &Request,
    fault: Option<Fault>,
) -> Answer {
    let Some(repo) = state.repos.get(route) else {
        return Answer::error(404, "RepoNotFound");
    };
    if let Some(target) = &repo.moved_to {
        return Answer::new(307).header("Location", format!("/{target}/resolve/{revision}/{file}"));
    }
    if let Err(refused) = allowed(state, repo, request) {
        return refused;
    }
    if !repo.revisions.iter().any(|known| known == revision) {
        return Answer::error(404, "RevisionNotFound");
    }
    let Some((_, bytes, large)) = repo.files.iter().find(|(name, _, _)| name == file) else {
        return Answer::error(404, "EntryNotFound");
    };
    if *large {
        let hash = hex_sha256(bytes);
        let name = file.rsplit('/').next().unwrap();
        return Answer::new(302)
            .header("Location", format!("{}/{name}/{hash}", state.store))
            .header("X-Repo-Commit", COMMIT)
            .header("X-Linked-Etag", format!("\"{hash}\""))
            .header("X-Linked-Size", bytes.len().to_string());
    }
    contents(bytes, request, fault)
        .header("ETag", format!("\"{}\"", etag(bytes, false)))
        .header("X-Repo-Commit", COMMIT)
}

fn contents(bytes: &[u8], request: &Request, fault: Option<Fault>) -> Answer {
    let range = request.range.as_deref().and_then(|range| {
        let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
        let from: usize = from.parse().ok()?;
        let to = to
            .parse()
            .map_or(bytes.len(), |to: usize| (to + 1).min(bytes.len()));
        Some((from, to))
    });
    let mut answer = match (range, fault) {
        (None, _) | (_, Some(Fault::NoRange)) => {
            let mut answer = Answer::new(200);
            answer.body = bytes.to_vec();
            answer
        }
        (Some((from, _)), _) if from >= bytes.len() => return Answer::new(416),
        (Some((from, to)), _) => {
            let mut answer = Answer::new(206).header(
                "Content-Range",
                format!("bytes {from}-{}/{}", to - 1, bytes.len()),
            );
            answer.body = bytes[from..to].to_vec();
            answer
        }
    };
    answer = answer.header("Accept-Ranges", "bytes");
    let length = answer.body.len().to_string();
    answer.header("Content-Length", length)
}

/// A model whose weights are in two shards, and what no program of ours reads.
pub fn sharded() -> Repo {
    let index = json!({"metadata": {}, "weight_map": {
        "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors",
    }});
    Repo::new(&[
        (".gitattributes", b"x"),
        ("README.md", b"# A model"),
        ("config.json", b"{\"model_type\": \"llama\"}"),
        ("generation_config.json", b"{}"),
        ("tokenizer.json", b"{\"tokens\": []}"),
        ("chat_template.jinja", b"{{ messages }}"),
        ("model.safetensors.index.json", index.to_string().as_bytes()),
        ("model-00001-of-00002.safetensors", &weights(1)),
        ("model-00002-of-00002.safetensors", &weights(2)),
        ("pytorch_model.bin", b"pickle"),
        ("original/consolidated.safetensors", b"another copy"),
    ])
}

/// A model in one file.
pub fn single() -> Repo {
    Repo::new(&[
        ("config.json", b"{}"),
        ("tokenizer.json", b"{}"),
        ("model.safetensors", &weights(3)),
    ])
}

/// A hundred kilobytes that are nowhere the same.
pub fn weights(seed: u32) -> Vec<u8> {
    (0..25_000u32)
        .flat_map(|i| (i.wrapping_mul(2_654_435_761) ^ seed).to_le_bytes())
        .collect()
}
