//! Answers a terminal gives to the questions programs ask it at start.
//!
//! Off unless a test wants them: a wrapper must work in a terminal that answers nothing, and must ask nothing itself.

/// Collects the replies while the screen model reads the output; the terminal's thread types them.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) enabled: bool,
    pub(crate) replies: Vec<u8>,
}

impl Answers {
    fn say(&mut self, reply: &str) {
        if self.enabled {
            self.replies.extend_from_slice(reply.as_bytes());
        }
    }
}

impl vt100::Callbacks for Answers {
    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        i1: Option<u8>,
        i2: Option<u8>,
        params: &[&[u16]],
        c: char,
    ) {
        let first = params.first().and_then(|p| p.first()).copied().unwrap_or(0);
        match (i1, i2, c, first) {
            (None, None, 'c', 0) => self.say("\x1b[?62;c"),
            (Some(b'>'), None, 'c', 0) => self.say("\x1b[>41;366;0c"),
            (Some(b'>'), None, 'q', 0) => self.say("\x1bP>|codemie-test 1.0\x1b\\"),
            (Some(b'?'), None, 'u', _) => self.say("\x1b[?0u"),
            (Some(b'?'), Some(b'$'), 'p', mode) => self.say(&format!("\x1b[?{mode};0$y")),
            (None, None, 'n', 5) => self.say("\x1b[0n"),
            (None, None, 'n', 6) => {
                let (row, col) = screen.cursor_position();
                self.say(&format!("\x1b[{};{}R", row + 1, col + 1));
            }
            _ => {}
        }
    }

    fn unhandled_osc(&mut self, _: &mut vt100::Screen, params: &[&[u8]]) {
        match params {
            [b"10", b"?"] => self.say("\x1b]10;rgb:dddd/dddd/dddd\x1b\\"),
            [b"11", b"?"] => self.say("\x1b]11;rgb:1111/1111/1111\x1b\\"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Answers;
    use std::num::NonZeroU16;

    fn replies(enabled: bool, output: &[u8]) -> String {
        let size = |n| NonZeroU16::new(n).unwrap();
        let answers = Answers { enabled, ..Answers::default() };
        let mut parser = vt100::Parser::new_with_callbacks(size(24), size(80), 0, answers);
        parser.process(output);
        String::from_utf8(parser.callbacks().replies.clone()).unwrap()
    }

    #[test]
    fn each_question_has_its_answer() {
        for (question, answer) in [
            ("\x1b[c", "\x1b[?62;c"),
            ("\x1b[0c", "\x1b[?62;c"),
            ("\x1b[>c", "\x1b[>41;366;0c"),
            ("\x1b[>0q", "\x1bP>|codemie-test 1.0\x1b\\"),
            ("\x1b[>q", "\x1bP>|codemie-test 1.0\x1b\\"),
            ("\x1b[?u", "\x1b[?0u"),
            ("\x1b[?2026$p", "\x1b[?2026;0$y"),
            ("\x1b[5n", "\x1b[0n"),
            ("ab\r\ncde\x1b[6n", "\x1b[2;4R"),
            ("\x1b]10;?\x07", "\x1b]10;rgb:dddd/dddd/dddd\x1b\\"),
            ("\x1b]11;?\x1b\\", "\x1b]11;rgb:1111/1111/1111\x1b\\"),
            ("\x1b[?25l\x1b[31mtext\x1b]0;title\x07", ""),
        ] {
            assert_eq!(replies(true, question.as_bytes()), answer, "{question:?}");
            assert_eq!(replies(false, question.as_bytes()), "", "{question:?} with answers off");
        }
    }
}
