//! The environment as a program has it. It belongs to the whole process, so each case is a process of its own.

#![allow(clippy::unwrap_used)] // A helper may panic as a test may.

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use common::{Repo, StandIn, single};
use mathneuro_hub::{Hub, HubOptions};

/// Set for the other process.
const CHILD: &str = "MATHNEURO_HUB_TEST_CHILD";

/// Not a test by itself: what the other process does. Its answer is what it prints.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut options = HubOptions::from_env().unwrap();
    options.retries = 0;
    match Hub::new(options)
        .unwrap()
        .model(&"org/name".parse().unwrap(), &|_| true)
    {
        Ok(model) => println!("folder: {}", model.folder.display()),
        Err(error) => println!("error: {error}"),
    }
}

fn run(endpoint: &str, home: &std::path::Path, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]);
    for name in [
        "ALL_PROXY",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "NO_PROXY",
        "HF_TOKEN",
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
    ] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
        .env(CHILD, "1")
        .env("HF_HOME", home)
        .env("HF_ENDPOINT", endpoint)
        .envs(variables.iter().copied());
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_proxy_that_fails_is_named_without_its_password() {
    let server = StandIn::start().with("org/name", single());
    let home = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let dead = format!("http://me:secret@{free}");
    let found = run(&server.endpoint, home.path(), &[("HTTP_PROXY", &dead)]);
    assert!(
        found.contains(&format!("the proxy http://{free} fails")),
        "{found}"
    );
    assert!(!found.contains("secret"), "{found}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
    });
    let found = run(&server.endpoint, home.path(), &[("ALL_PROXY", &proxy)]);
    assert!(
        found.contains(&format!("the proxy {proxy} fails")),
        "{found}"
    );

    let direct = [
        ("HTTP_PROXY", dead.as_str()),
        ("NO_PROXY", "127.0.0.1,localhost"),
    ];
    let found = run(&server.endpoint, home.path(), &direct);
    assert!(found.contains("folder: "), "{found}");
}

#[test]
fn token_file_cache_and_offline_are_obeyed() {
    let server = StandIn::start().with(
        "org/name",
        Repo {
            gated: true,
            ..single()
        },
    );
    server.accept_token("hf_right");
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join("elsewhere");
    let cache = ("HF_HUB_CACHE", cache.to_str().unwrap());
    let found = run(&server.endpoint, home.path(), &[cache]);
    assert!(found.contains("is gated"), "{found}");
    std::fs::write(home.path().join("token"), "hf_right\n").unwrap();
    let found = run(&server.endpoint, home.path(), &[cache]);
    assert!(
        found.contains("elsewhere/models--org--name/snapshots/"),
        "{found}"
    );
    let before = server.requests().len();
    let found = run(
        &server.endpoint,
        home.path(),
        &[cache, ("HF_HUB_OFFLINE", "1")],
    );
    assert!(
        found.contains("elsewhere/models--org--name/snapshots/"),
        "{found}"
    );
    assert_eq!(server.requests().len(), before, "no connection");
}
