//! `--name value` and `--flag`, and nothing else: the callers are programs.

use std::collections::BTreeMap;
use std::str::FromStr;

/// Arguments of one run, by name without the dashes.
pub struct Args {
    values: BTreeMap<String, String>,
}

impl Args {
    /// Read the process's arguments. `known` lists every accepted name; `flags` those without a value.
    ///
    /// # Errors
    /// An unknown name or a missing value, in words.
    pub fn parse(known: &[&str], flags: &[&str]) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| format!("expected --name, got {word:?}"))?;
            if flags.contains(&name) {
                values.insert(name.to_owned(), String::new());
            } else if known.contains(&name) {
                let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
                values.insert(name.to_owned(), value);
            } else {
                return Err(format!("unknown argument --{name}; known: {known:?} and flags {flags:?}"));
            }
        }
        Ok(Self { values })
    }

    pub fn flag(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// # Errors
    /// The argument is missing.
    pub fn required(&self, name: &str) -> Result<&str, String> {
        self.text(name).ok_or_else(|| format!("--{name} is required"))
    }

    /// # Errors
    /// The value does not parse; a missing one takes `default`.
    pub fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        self.text(name).map_or(Ok(default), |text| text.parse().map_err(|_| format!("--{name} {text:?} is no number")))
    }
}
