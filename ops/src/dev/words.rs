//! Words that are typed into a running dev cluster: `cut us`, `heal us`.
//!
//! Invariant: standard input is read only where that cannot stop the process (a background job that
//! reads its terminal is stopped by the kernel); its end means nothing.

use std::io::{BufRead, IsTerminal};

use cadastre_core::ids::Name;
use tokio::sync::mpsc;

use super::cluster::Cluster;

/// What was typed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Word {
    /// Cut a region off.
    Cut(Name),
    /// End that.
    Heal(Name),
    /// Anything else.
    Unknown,
}

impl Word {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let word = match (words.next()?, words.next().map(Name::new), words.next()) {
            ("cut", Some(Ok(region)), None) => Self::Cut(region),
            ("heal", Some(Ok(region)), None) => Self::Heal(region),
            _ => Self::Unknown,
        };
        Some(word)
    }

    /// Does it, and says what happened.
    pub fn act(&self, cluster: &Cluster) -> String {
        let (region, cut) = match self {
            Self::Cut(region) => (region, true),
            Self::Heal(region) => (region, false),
            Self::Unknown => return "words that are known here: cut REGION, heal REGION".to_owned(),
        };
        let Some(uplink) = cluster.uplink(region) else {
            return format!("there is no region {region} here");
        };
        match (cut, uplink.is_cut()) {
            (true, true) => format!("{region} is cut off already; `heal {region}` ends that"),
            (false, false) => format!("{region} is not cut off"),
            (true, false) => {
                uplink.cut();
                format!(
                    "{region} is cut off from the authority: it issues from what it holds (`{} status`)",
                    super::banner::command()
                )
            }
            (false, true) => {
                uplink.heal();
                format!("{region} reaches the authority again")
            }
        }
    }
}

/// Words as they are typed; never closed, also where nothing is read.
pub fn typed() -> (mpsc::Receiver<Word>, mpsc::Sender<Word>) {
    let (to, from) = mpsc::channel(8);
    if may_read() {
        let to = to.clone();
        // Not a task: the runtime would wait for the line that nobody types.
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if let Some(word) = Word::parse(&line)
                    && to.blocking_send(word).is_err()
                {
                    return;
                }
            }
        });
    }
    (from, to)
}

fn may_read() -> bool {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return true;
    }
    // In the foreground, the terminal's group is ours.
    nix::unistd::tcgetpgrp(&input).is_ok_and(|group| group == nix::unistd::getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_with_their_region() {
        let us = Name::new("us").unwrap();
        assert_eq!(Word::parse(" cut  us "), Some(Word::Cut(us.clone())));
        assert_eq!(Word::parse("heal us"), Some(Word::Heal(us)));
        assert_eq!(Word::parse("  "), None);
        for other in ["cut", "cut a/b", "heal us now", "help"] {
            assert_eq!(Word::parse(other), Some(Word::Unknown), "{other}");
        }
    }
}
