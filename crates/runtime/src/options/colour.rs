//! Whether text is coloured.

use std::{ffi::OsString, io::IsTerminal};

/// Returns whether text that is written to `stream`, such as [`stdout`](std::io::stdout), should be coloured: if it is a
/// terminal, unless `NO_COLOR` is set and not empty (<https://no-color.org>) or `TERM` is `dumb`. Log lines follow the
/// same rule.
pub fn shows_colour(stream: &impl IsTerminal) -> bool {
    is_coloured(
        stream.is_terminal(),
        std::env::var_os("NO_COLOR"),
        std::env::var_os("TERM"),
    )
}

fn is_coloured(is_terminal: bool, no_color: Option<OsString>, term: Option<OsString>) -> bool {
    let no_color = no_color.is_some_and(|value| !value.is_empty());
    let is_dumb = term.is_some_and(|term| term == "dumb");
    is_terminal && !no_color && !is_dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_that_allows_colour_gets_it() {
        for (is_terminal, no_color, term, expected) in [
            (true, None, Some("xterm-256color"), true),
            (true, None, None, true),
            (true, Some(""), Some("xterm"), true),
            (true, Some("1"), Some("xterm"), false),
            (true, None, Some("dumb"), false),
            (false, None, Some("xterm"), false),
        ] {
            let found = is_coloured(is_terminal, no_color.map(Into::into), term.map(Into::into));
            assert_eq!(found, expected, "{is_terminal} {no_color:?} {term:?}");
        }
    }
}
