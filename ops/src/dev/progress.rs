//! What is being waited for, shown on a terminal and nowhere else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::show;

/// A spinner with a line of text; silent where standard error is no terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// A turning one.
    pub fn start() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// Says what is under way.
    pub fn say(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }

    /// Prints a line that stays.
    pub fn line(&self, text: &str) {
        self.0.suspend(|| show::line(text));
    }

    /// Takes the line away.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
