// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The user's terminal: colours, size, raw mode.

use crate::protocol::TermSize;
use nix::sys::termios;
use nix::sys::termios::SetArg;
use nix::sys::termios::Termios;
use std::io;
use std::io::IsTerminal;
use std::os::fd::AsRawFd;

mod ioctls {
    nix::ioctl_read_bad!(get_window_size, nix::libc::TIOCGWINSZ, nix::pty::Winsize);
}

/// Escape sequences, empty where standard error is no terminal or the user wants no colours.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// What suits standard error.
    pub fn for_stderr() -> Self {
        Self {
            on: io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    /// What suits standard output.
    pub fn for_stdout() -> Self {
        Self {
            on: io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Bold red.
    pub fn bad(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    /// Green.
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Yellow.
    pub fn warn(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// Grey.
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }
}

/// The size of the terminal on standard input, if it is one.
pub fn size() -> Option<TermSize> {
    let mut window = nix::pty::Winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: `window` is a live, writable Winsize, the type that TIOCGWINSZ fills.
    unsafe { ioctls::get_window_size(io::stdin().as_raw_fd(), &mut window) }.ok()?;
    Some(TermSize {
        rows: window.ws_row,
        cols: window.ws_col,
    })
}

/// Standard input passes every key on while this value lives.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Switches; none where standard input is no terminal.
    pub fn enter() -> Option<Self> {
        let before = termios::tcgetattr(io::stdin()).ok()?;
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before);
    }
}
