//! The screen of a program, as a terminal would show it, for people who look later and for those who read it.

/// The screen at one moment, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenView {
    /// One string per row, without trailing blanks.
    pub rows: Vec<String>,
    /// Row and column of the cursor, from 0.
    pub cursor: (u16, u16),
    pub cursor_visible: bool,
    /// The title that the program gave its window.
    pub title: String,
    /// The last report of a program's own state: the text of `OSC 7501`.
    pub reported_state: Option<String>,
    /// The program asked for pastes to be marked.
    pub bracketed_paste: bool,
    pub alternate_screen: bool,
    /// Cells in faint letters: placeholders and suggestions, which nobody typed.
    pub faint: Vec<CellRange>,
    /// Cells in inverse colours: the caret of programs that hide the terminal's own cursor, and chosen lines of menus.
    pub inverse: Vec<CellRange>,
}

/// Neighbouring cells of one row, from 0. Cells with nothing in them do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRange {
    pub row: u16,
    pub from: u16,
    /// The column after the last.
    pub to: u16,
}

/// Placeholder.
#[derive(Debug)]
pub struct Screen;
impl Screen {
    pub fn new(_size: portable_pty::PtySize, _scrollback: usize) -> Self {
        Self
    }
    pub fn feed(&mut self, _bytes: &[u8]) {}
    pub fn resize(&mut self, _size: portable_pty::PtySize) {}
    pub fn view(&self) -> ScreenView {
        ScreenView::default()
    }
    pub fn key_frame(&self) -> Vec<u8> {
        Vec::new()
    }
    pub fn take_answers(&mut self) -> Vec<u8> {
        Vec::new()
    }
}
