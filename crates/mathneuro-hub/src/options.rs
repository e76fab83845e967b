//! Where the hub is, where its cache is, and how hard to try.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{HubError, Result, io};

/// The hub when no other is named.
const ENDPOINT: &str = "https://huggingface.co";

/// How to reach the hub. [`HubOptions::from_env`] obeys the variables that Python's client obeys; fields may be set
/// afterwards.
#[derive(Clone)]
#[non_exhaustive]
pub struct HubOptions {
    /// The cache, shared with Python's client: `HF_HUB_CACHE`, or `hub` in `HF_HOME`.
    pub cache: PathBuf,
    /// Where data sets are kept as rows, a folder of this project's own: `mathneuro` in `HF_HOME`.
    pub rows: PathBuf,
    /// The hub: `HF_ENDPOINT`.
    pub endpoint: String,
    /// The token: `HF_TOKEN`, or what `HF_TOKEN_PATH` or `token` in `HF_HOME` holds.
    pub token: Option<String>,
    /// Whether to stay without any connection: `HF_HUB_OFFLINE`.
    pub offline: bool,
    /// Files fetched at once.
    pub parallel: usize,
    /// How often a file is tried again without a byte of progress.
    pub retries: u32,
    /// The wait before the first retry; it doubles each time, up to ten seconds.
    pub retry_wait: Duration,
    /// The proxy that the variables name. The transport reads those variables itself: this is for messages only.
    pub proxy: Option<String>,
}

impl HubOptions {
    /// The public hub, no token, and all folders below `home` (what `HF_HOME` names).
    pub fn new(home: impl Into<PathBuf>) -> Self {
        let home = home.into();
        Self {
            cache: home.join("hub"),
            rows: home.join("mathneuro"),
            endpoint: ENDPOINT.to_owned(),
            token: None,
            offline: false,
            parallel: 4,
            retries: 5,
            retry_wait: Duration::from_millis(500),
            proxy: None,
        }
    }

    /// What the environment says; see [`HubOptions`] for the variables.
    ///
    /// # Errors
    /// [`HubError::InvalidOption`] when there is no home folder and no variable that replaces it, or for an endpoint or a
    /// token that cannot be one; [`HubError::Io`] for a token file that cannot be read.
    pub fn from_env() -> Result<Self> {
        Self::from_lookup(|name| std::env::var_os(name), std::env::home_dir())
    }

    fn from_lookup(
        lookup: impl Fn(&str) -> Option<OsString>,
        home: Option<PathBuf>,
    ) -> Result<Self> {
        let raw = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let text = |name: &'static str| match raw(name) {
            None => Ok(None),
            Some(value) => match value.into_string() {
                Ok(value) => Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty())),
                Err(_) => Err(HubError::InvalidOption {
                    name,
                    reason: "it is not UTF-8".to_owned(),
                }),
            },
        };
        let folder = |name: &str| {
            raw(name).map(|value| {
                let path = PathBuf::from(value);
                match (path.strip_prefix("~"), &home) {
                    (Ok(rest), Some(home)) => home.join(rest),
                    _ => path,
                }
            })
        };
        let hf_home = folder("HF_HOME")
            .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
            .or_else(|| home.as_ref().map(|home| home.join(".cache/huggingface")))
            .ok_or_else(|| HubError::InvalidOption {
                name: "HF_HOME",
                reason:
                    "it is not set, and there is no home folder; set it to where models may be kept"
                        .to_owned(),
            })?;
        let mut options = Self::new(&hf_home);
        if let Some(cache) = folder("HF_HUB_CACHE").or_else(|| folder("HUGGINGFACE_HUB_CACHE")) {
            options.cache = cache;
        }
        if let Some(endpoint) = text("HF_ENDPOINT")? {
            options.endpoint = endpoint;
        }
        options.token = match text("HF_TOKEN")? {
            Some(token) => Some(token),
            None => read_token(&folder("HF_TOKEN_PATH").unwrap_or_else(|| hf_home.join("token")))?,
        };
        options.offline = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"]
            .into_iter()
            .filter_map(raw)
            .any(|value| is_true(&value.to_string_lossy()));
        options.proxy = [
            "ALL_PROXY",
            "all_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "HTTP_PROXY",
            "http_proxy",
        ]
        .into_iter()
        .find_map(raw)
        .map(|value| without_credentials(&value.to_string_lossy()));
        options.check()?;
        Ok(options)
    }

    /// What would otherwise fail as a request that makes no sense.
    pub(crate) fn check(&self) -> Result<()> {
        let host = ["https://", "http://"]
            .iter()
            .find_map(|scheme| self.endpoint.strip_prefix(scheme));
        if !host.is_some_and(|host| host.bytes().all(|b| b.is_ascii_graphic()) && !host.is_empty())
        {
            return Err(HubError::InvalidOption {
                name: "HF_ENDPOINT",
                reason: format!(
                    "`{}` is not a URL that begins with https:// or http://",
                    self.endpoint
                ),
            });
        }
        if let Some(token) = &self.token
            && !token.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(HubError::InvalidOption {
                name: "HF_TOKEN",
                reason: "a token has only letters, digits and signs, in one line".to_owned(),
            });
        }
        Ok(())
    }
}

impl fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubOptions")
            .field("cache", &self.cache)
            .field("rows", &self.rows)
            .field("endpoint", &self.endpoint)
            // A token in a log is a token lost.
            .field("token", &self.token.as_ref().map(|_| "(set)"))
            .field("offline", &self.offline)
            .field("parallel", &self.parallel)
            .field("retries", &self.retries)
            .field("retry_wait", &self.retry_wait)
            .field("proxy", &self.proxy)
            .finish()
    }
}

fn read_token(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io("read the token file", path)(error)),
    }
}

/// The words that Python's client takes for yes.
fn is_true(text: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&text.trim().to_ascii_lowercase().as_str())
}

fn without_credentials(proxy: &str) -> String {
    let (scheme, rest) = proxy.split_once("://").unwrap_or(("http", proxy));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(vars: &[(&str, &str)]) -> Result<HubOptions> {
        let lookup = |name: &str| {
            let found = vars.iter().find(|(var, _)| *var == name);
            found.map(|(_, value)| OsString::from(value))
        };
        HubOptions::from_lookup(lookup, Some("/home/u".into()))
    }

    #[test]
    fn folders_come_from_the_most_specific_variable() {
        let cache = |vars: &[(&str, &str)]| options(vars).unwrap().cache;
        assert_eq!(cache(&[]), Path::new("/home/u/.cache/huggingface/hub"));
        assert_eq!(
            cache(&[("XDG_CACHE_HOME", "/x")]),
            Path::new("/x/huggingface/hub")
        );
        let home = ("HF_HOME", "~/hf");
        assert_eq!(cache(&[home]), Path::new("/home/u/hf/hub"));
        assert_eq!(cache(&[home, ("HF_HUB_CACHE", "/big")]), Path::new("/big"));
        assert_eq!(cache(&[("HF_HOME", "")]), cache(&[]));
        assert!(HubOptions::from_lookup(|_| None, None).is_err());
    }

    #[test]
    fn the_variable_wins_over_the_token_file_and_no_token_is_printed() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap();
        std::fs::write(dir.path().join("token"), "hf_file\n").unwrap();
        let from = |vars: &[(&str, &str)]| options(vars).unwrap().token;
        assert_eq!(from(&[("HF_HOME", home)]).as_deref(), Some("hf_file"));
        let both = [("HF_HOME", home), ("HF_TOKEN", " hf_var ")];
        assert_eq!(from(&both).as_deref(), Some("hf_var"));
        assert!(!format!("{:?}", options(&both).unwrap()).contains("hf_var"));
        let broken = options(&[("HF_TOKEN", "two words")]).unwrap_err();
        assert!(!broken.to_string().contains("two words"), "{broken}");
    }

    #[test]
    fn offline_endpoint_and_proxy_are_read() {
        for (value, expected) in [("1", true), ("Yes", true), ("0", false), ("", false)] {
            let found = options(&[("HF_HUB_OFFLINE", value)]).unwrap();
            assert_eq!(found.offline, expected, "{value}");
        }
        assert_eq!(options(&[]).unwrap().endpoint, "https://huggingface.co");
        assert!(options(&[("HF_ENDPOINT", "hub.example")]).is_err());
        let proxy = options(&[("HTTPS_PROXY", "http://me:secret@proxy:3128")]).unwrap();
        assert_eq!(proxy.proxy.as_deref(), Some("http://proxy:3128"));
    }
}
