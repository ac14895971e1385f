//! A view of ours that takes the whole terminal: what is drawn, what is typed, and that the terminal is given back.
//!
//! Promises: the terminal has its settings, its screen and its cursor back when the view is dropped, also after a panic and
//! after signals that would end us ([`Event::End`]). Only cells that changed are written. Nothing is asked of the terminal.
//!
//! A view paints into a [`Buffer`] of ratatui's; this module is the way from there to the terminal.

pub mod choose;
mod keys;
mod paint;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use pty::Viewer;
use pty::viewer::{Interest, ViewerEvent};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Rect};

use format::output::Style;
use keys::KeyReader;
pub use keys::{Key, edit};
pub use paint::{folded, key_line, marked, put, style};

/// How long the rest of an escape sequence may take to arrive; a bare Escape is known by its silence.
const SEQUENCE: Duration = Duration::from_millis(50);

/// The alternate screen, cleared, without a cursor; pasted text is marked as such, so that no letter of it is taken for a command.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[2J\x1b[?25l\x1b[?2004h";
const LEAVE: &[u8] = b"\x1b[0m\x1b[?2004l\x1b[?25h\x1b[?1049l";

/// What a view waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Key(Key),
    /// Paint again, for another size or because a shell has written on the screen.
    Repaint,
    /// A signal is to end us.
    End(i32),
    /// The terminal is gone.
    Gone,
    /// There is something to read where the view waits besides.
    Woken,
    TimeUp,
}

/// The terminal, taken as a whole.
#[derive(Debug)]
pub struct Fullscreen {
    /// `None` once it was given back.
    viewer: Option<Viewer>,
    colour: bool,
    keys: KeyReader,
    /// What the terminal shows.
    shown: Buffer,
    to_write: Vec<u8>,
}

impl Fullscreen {
    /// Takes the terminal. `None` unless standard input and output are one that can be drawn on, and we are its foreground job.
    pub fn open() -> io::Result<Option<Self>> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let Some(viewer) = (!dumb).then(Viewer::open).transpose()?.flatten() else { return Ok(None) };
        Ok(Some(Self {
            viewer: Some(viewer),
            colour: Style::of_stdout().colour,
            keys: KeyReader::default(),
            shown: Buffer::empty(Rect::ZERO),
            to_write: ENTER.to_vec(),
        }))
    }

    /// The area to paint.
    pub fn area(&self) -> Rect {
        let size = self.viewer.as_ref().and_then(|viewer| viewer.size().ok());
        let (columns, rows) = size.map_or((80, 24), |size| (size.cols, size.rows));
        Rect::new(0, 0, columns.clamp(1, 500), rows.clamp(1, 300))
    }

    /// Paints a frame; `paint` returns where the cursor stands, if it is to be seen.
    pub fn draw(&mut self, paint: impl FnOnce(&mut Buffer) -> Option<Position>) {
        let area = self.area();
        if self.shown.area != area {
            self.shown = Buffer::empty(area);
            self.to_write.extend_from_slice(b"\x1b[0m\x1b[2J");
        }
        let mut next = Buffer::empty(area);
        let cursor = paint(&mut next);
        paint::write_changes(&self.shown, &next, self.colour, &mut self.to_write);
        paint::write_cursor(cursor, &mut self.to_write);
        self.shown = next;
        self.write_some();
    }

    /// The next event; waits for `timeout` at the most.
    pub fn next(&mut self, timeout: Option<Duration>) -> io::Result<Event> {
        self.next_or_woken(None, timeout)
    }

    /// The same, and [`Event::Woken`] as soon as there is something to read from `other`.
    pub fn next_or_woken(
        &mut self,
        other: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
    ) -> io::Result<Event> {
        loop {
            if let Some(key) = self.keys.next() {
                return Ok(Event::Key(key));
            }
            let Some(viewer) = &mut self.viewer else { return Ok(Event::Gone) };
            if let Some(event) = viewer.next_event() {
                match event {
                    ViewerEvent::Resized => return Ok(Event::Repaint),
                    ViewerEvent::Continued => {
                        self.shown = Buffer::empty(Rect::ZERO);
                        self.to_write = ENTER.to_vec();
                        return Ok(Event::Repaint);
                    }
                    ViewerEvent::LostTerminal => return Ok(Event::Gone),
                    ViewerEvent::End(signal) => return Ok(Event::End(signal)),
                }
            }
            let interest =
                Interest { typed: true, terminal_writable: !self.to_write.is_empty(), ..Interest::default() };
            let within = if self.keys.is_inside_sequence() { Some(SEQUENCE) } else { timeout };
            let ready = match other {
                Some(other) => viewer.wait(other, Interest { received: true, ..interest }, within)?,
                None => viewer.wait_alone(interest, within)?,
            };
            if ready.typed {
                let mut typed = [0; 1024];
                match viewer.read(&mut typed) {
                    pty::Input::Bytes(count) => self.keys.add(&typed[..count]),
                    pty::Input::Nothing => {}
                    _ => return Ok(Event::Gone),
                }
            } else if ready.terminal_writable {
                self.write_some();
            } else if ready.received {
                return Ok(Event::Woken);
            } else if self.keys.is_inside_sequence() {
                self.keys.time_up();
            } else if within.is_some() {
                return Ok(Event::TimeUp);
            }
        }
    }

    /// Writes what the terminal takes now.
    fn write_some(&mut self) {
        if let Some(viewer) = &mut self.viewer {
            let written = viewer.write(&self.to_write).unwrap_or(self.to_write.len());
            self.to_write.drain(..written);
        }
    }
}

impl Drop for Fullscreen {
    fn drop(&mut self) {
        if let Some(viewer) = self.viewer.take() {
            self.to_write.extend_from_slice(LEAVE);
            viewer.finish(&self.to_write);
        }
    }
}
