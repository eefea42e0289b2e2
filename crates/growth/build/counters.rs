//! Inserts counters into a file: into the bodies of its functions, loops and closures, and before calls that search or
//! move the items of a list.
//!
//! It works on the tokens of formatted code. What it does not recognise is not counted, and a mistake does not compile.
//! Insertions add no lines, so that line numbers stay the same.

use std::path::Path;

use crate::{
    MODULES,
    tokens::{Kind, Token, tokens},
};

/// Methods that call their closures n log n times.
const SORTING: [&str; 9] = [
    "sort_by",
    "sort_by_key",
    "sort_by_cached_key",
    "sort_unstable_by",
    "sort_unstable_by_key",
    "binary_search_by",
    "binary_search_by_key",
    "partition_point",
    "is_sorted_by",
];

/// Returns the text with counters, and adds their locations to `sites`. `module` is the module that the file's crate
/// becomes, if it does not become the root.
pub(crate) fn insert(
    text: &str,
    file: &Path,
    folder: &Path,
    module: Option<&str>,
    sites: &mut Vec<String>,
) -> String {
    let tokens = tokens(text);
    let mut file = File {
        tokens: &tokens,
        folder,
        text,
        name: Path::new(module.unwrap_or_default())
            .join(file)
            .display()
            .to_string(),
        sites,
        insertions: Vec::new(),
        replaced: Vec::new(),
    };
    file.walk();
    file.make_absolute();
    file.rewrite_paths(module);
    file.finish()
}

struct File<'t> {
    tokens: &'t [Token<'t>],
    folder: &'t Path,
    text: &'t str,
    name: String,
    sites: &'t mut Vec<String>,
    /// Offset and text of each insertion.
    insertions: Vec<(usize, String)>,
    /// Ranges to leave out.
    replaced: Vec<(usize, usize)>,
}

impl File<'_> {
    fn walk(&mut self) {
        let mut index = 0;
        while let Some(token) = self.tokens.get(index) {
            index = match token.text {
                // Constant evaluation cannot count.
                "const" | "static" if token.kind == Kind::Word => self.after_constant(index),
                // `impl … for …`
                "impl" => self.find(index, |token| token.is(b'{')),
                "fn" if self.kind(index + 1) == Some(Kind::Word) => {
                    let body = self.find(index, |token| token.is(b'{') || token.is(b';'));
                    if self.is(body, b'{') {
                        self.count_block(body);
                    }
                    body + 1
                }
                "loop" if self.is(index + 1, b'{') => {
                    self.count_block(index + 1);
                    index + 1
                }
                "for" if token.kind == Kind::Word && !self.is(index + 1, b'<') => {
                    let within = self.find(index, |token| token.is_word("in"));
                    let body = self.find(within, |token| token.is(b'{'));
                    self.count_block(body);
                    index + 1
                }
                "while" if token.kind == Kind::Word => {
                    let condition = if self.tokens[index + 1].is_word("let") {
                        self.find(index, |token| token.is(b'='))
                    } else {
                        index
                    };
                    let body = self.find(condition, |token| token.is(b'{'));
                    self.count_block(body);
                    index + 1
                }
                "|" if self.begins_expression(index) => self.count_closure(index),
                "contains" if self.is(index + 1, b'(') && index > 1 && self.is(index - 1, b'.') => {
                    self.count_search(index);
                    index + 1
                }
                "insert" | "remove" if self.is(index + 1, b'(') && index > 1 && self.is(index - 1, b'.') => {
                    self.count_moves(index);
                    index + 1
                }
                _ => index + 1,
            };
        }
    }

    fn is(&self, index: usize, mark: u8) -> bool {
        self.tokens.get(index).is_some_and(|token| token.is(mark))
    }

    fn kind(&self, index: usize) -> Option<Kind> {
        self.tokens.get(index).map(|token| token.kind)
    }

    /// The next matching token outside of brackets, or the end.
    fn find(&self, after: usize, is_it: impl Fn(&Token<'_>) -> bool) -> usize {
        let mut depth = 0_usize;
        for (index, token) in self.tokens.iter().enumerate().skip(after + 1) {
            if depth == 0 && is_it(token) {
                return index;
            }
            if token.opens() {
                depth += 1;
            } else if token.closes() {
                depth = depth.saturating_sub(1);
            }
        }
        self.tokens.len()
    }

    /// The token after a constant or a const function.
    fn after_constant(&self, index: usize) -> usize {
        let is_function = self.tokens[index + 1..]
            .iter()
            .take_while(|token| token.kind == Kind::Word)
            .any(|token| token.text == "fn");
        if is_function {
            let body = self.find(index, |token| token.is(b'{') || token.is(b';'));
            if self.is(body, b'{') {
                return self.find(body, |token| token.is(b'}')) + 1;
            }
            return body + 1;
        }
        // `[const { … }; 4]`
        if self.is(index + 1, b'{') {
            return self.find(index + 1, |token| token.is(b'}')) + 1;
        }
        self.find(index, |token| token.is(b';')) + 1
    }

    fn site(&mut self, at: usize) -> usize {
        let line = self.text[..at].matches('\n').count() + 1;
        self.sites.push(format!("{}:{line}", self.name));
        self.sites.len() - 1
    }

    /// Counts how often the block that starts with this brace is entered.
    fn count_block(&mut self, brace: usize) {
        let Some(token) = self.tokens.get(brace) else {
            return;
        };
        let end = token.end();
        let site = self.site(end);
        self.insertions
            .push((end, format!(" crate::steps::step({site});")));
    }

    /// Whether a bar starts a closure, rather than being an alternative or an operator.
    fn begins_expression(&self, index: usize) -> bool {
        let Some(before) = index.checked_sub(1).map(|before| &self.tokens[before]) else {
            return false;
        };
        match before.kind {
            Kind::Mark(mark) => {
                matches!(mark, b'(' | b'[' | b'{' | b',' | b'=' | b';' | b'&' | b':')
                    || (mark == b'>' && index > 1 && self.is(index - 2, b'='))
            }
            Kind::Word => matches!(before.text, "move" | "return" | "mut" | "else"),
            Kind::Literal => false,
        }
    }

    /// Counts how often a closure is called. Returns the index to continue at.
    fn count_closure(&mut self, first_bar: usize) -> usize {
        let end = self.find(first_bar, |token| token.is(b'|'));
        let body = end + 1;
        let Some(first) = self.tokens.get(body).copied() else {
            return body;
        };
        if self.sorts(first_bar) {
            return body;
        }
        if first.is(b'-') && self.is(body + 1, b'>') {
            let brace = self.find(body, |token| token.is(b'{'));
            self.count_block(brace);
        } else if first.is(b'{') {
            self.count_block(body);
        } else {
            let last = self.last_of_expression(body);
            let site = self.site(first.start);
            self.insertions
                .push((first.start, format!("{{ crate::steps::step({site}); ")));
            self.insertions.push((self.tokens[last].end(), " }".to_owned()));
        }
        body
    }

    fn sorts(&self, first_bar: usize) -> bool {
        let method = (0..first_bar)
            .rev()
            .find(|index| !matches!(self.tokens[*index].text, "move" | "&" | "mut" | "("));
        method.is_some_and(|method| SORTING.contains(&self.tokens[method].text))
    }

    /// The last token of the longest expression that starts here.
    fn last_of_expression(&self, first: usize) -> usize {
        let (mut depth, mut angles) = (0_usize, 0_usize);
        for (index, token) in self.tokens.iter().enumerate().skip(first) {
            let before = |back: usize| index.checked_sub(back).map(|index| &self.tokens[index]);
            if token.opens() {
                depth += 1;
            } else if token.closes() {
                match depth.checked_sub(1) {
                    Some(less) => depth = less,
                    None => return index - 1,
                }
            } else if token.is(b'<') && (angles > 0 || before(1).is_some_and(|before| before.is(b':'))) {
                angles += 1;
            } else if token.is(b'>') && angles > 0 && !before(1).is_some_and(|before| before.is(b'-')) {
                angles -= 1;
            } else if depth == 0 && angles == 0 && (token.is(b',') || token.is(b';')) {
                return index - 1;
            }
        }
        self.tokens.len() - 1
    }

    /// Counts the length of what `contains` searches.
    fn count_search(&mut self, method: usize) {
        let Some(first) = self.receiver(method - 1) else {
            return;
        };
        let (start, dot) = (self.tokens[first].start, self.tokens[method - 1].start);
        let site = self.site(start);
        self.insertions
            .push((start, format!("crate::searched!({site}, ")));
        self.insertions.push((dot, ")".to_owned()));
    }

    /// Counts the length of the list whose items `insert` and `remove` move.
    fn count_moves(&mut self, method: usize) {
        let Some(first) = self.receiver(method - 1) else {
            return;
        };
        let receiver = &self.tokens[first..method - 1];
        let is_place = |token: &Token<'_>| matches!(token.kind, Kind::Word | Kind::Literal) || token.is(b'.');
        if !receiver.iter().all(is_place) || receiver[0].kind != Kind::Word {
            return;
        }
        let start = receiver[0].start;
        let text = &self.text[start..receiver[receiver.len() - 1].end()];
        let counted = |site: usize| format!("let _ = crate::searched!({site}, {text}); ");
        let begins_statement = first
            .checked_sub(1)
            .is_some_and(|before| matches!(self.tokens[before].kind, Kind::Mark(b';' | b'{' | b'}')));
        let site = self.site(start);
        if begins_statement {
            self.insertions.push((start, counted(site)));
        } else {
            let end = self.find(method + 1, |token| token.is(b')'));
            let end = self.tokens[end].end();
            self.insertions.push((start, format!("{{ {}", counted(site))));
            self.insertions.push((end, " }".to_owned()));
        }
    }

    /// The first token of the chain of calls and fields before this dot.
    fn receiver(&self, dot: usize) -> Option<usize> {
        let mut last = dot.checked_sub(1)?;
        loop {
            let token = &self.tokens[last];
            let first = if token.is(b'?') {
                last = last.checked_sub(1)?;
                continue;
            } else if token.is(b')') || token.is(b']') {
                let open = self.opening(last)?;
                match open.checked_sub(1).map(|before| &self.tokens[before]) {
                    Some(before) if before.kind == Kind::Word && !is_keyword(before.text) => open - 1,
                    Some(before) if before.is(b')') || before.is(b']') || before.is(b'?') => {
                        last = open - 1;
                        continue;
                    }
                    // `f::<T>(…)` and macros.
                    Some(before) if before.is(b'>') || before.is(b'!') => return None,
                    _ => open,
                }
            } else if matches!(token.kind, Kind::Word | Kind::Literal) {
                last
            } else {
                return None;
            };
            let before = |back: usize| {
                first
                    .checked_sub(back)
                    .is_some_and(|index| self.tokens[index].is(if back == 3 { b'.' } else { b':' }))
            };
            if first > 0 && self.tokens[first - 1].is(b'.') && !(first > 1 && self.tokens[first - 2].is(b'.'))
            {
                last = first.checked_sub(2)?;
            } else if before(1) && before(2) {
                last = first.checked_sub(3)?;
                // `::path` and `<T as U>::path`
                if !matches!(self.tokens[last].kind, Kind::Word) {
                    return None;
                }
            } else {
                return Some(first);
            }
        }
    }

    fn opening(&self, close: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for index in (0..=close).rev() {
            if self.tokens[index].closes() {
                depth += 1;
            } else if self.tokens[index].opens() {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
        }
        None
    }

    /// Makes paths of included files absolute: `include_str!("…")`.
    fn make_absolute(&mut self) {
        for name in self.tokens.windows(4) {
            if matches!(name[0].text, "include_bytes" | "include_str") && name[1].is(b'!') {
                let literal = name[3];
                let path = self.folder.join(literal.text.trim_matches('"'));
                self.replaced.push((literal.start, literal.end()));
                self.insertions
                    .push((literal.start, format!("{:?}", path.display().to_string())));
            }
        }
    }

    /// Makes paths lead to the modules that the crates become: `windlass_api::…` is `crate::windlass_api::…`, and in
    /// such a module `crate::…` is `crate::windlass_api::…`.
    fn rewrite_paths(&mut self, module: Option<&str>) {
        for (index, name) in self.tokens.iter().enumerate() {
            if !(self.is(index + 1, b':') && self.is(index + 2, b':')) {
                continue;
            }
            if MODULES.iter().any(|(module, _)| name.is_word(module)) {
                self.insertions.push((name.start, "crate::".to_owned()));
            } else if let Some(module) = module.filter(|_| name.is_word("crate")) {
                self.insertions.push((name.end(), format!("::{module}")));
            }
        }
    }

    fn finish(mut self) -> String {
        // A stable sort: insertions at the same offset keep their order.
        self.insertions.sort_by_key(|(place, _)| *place);
        let mut text = String::with_capacity(self.text.len() * 2);
        let mut place = 0;
        let mut replaced = self.replaced.iter().peekable();
        for (next, insertion) in &self.insertions {
            text.push_str(&self.text[place..*next]);
            text.push_str(insertion);
            place = *next;
            if let Some((_, end)) = replaced.next_if(|(start, _)| start == next) {
                place = *end;
            }
        }
        text.push_str(&self.text[place..]);
        // Disables the server's own tests.
        text = text.replace("#[cfg(test)]", "#[cfg(any())]");
        if self.name == "lib.rs" {
            // An included file cannot have inner doc comments.
            text = text.replace("\n//!", "\n//").replacen("//!", "//", 1);
        }
        text
    }
}

fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "if" | "in" | "return" | "match" | "while" | "else" | "let" | "break" | "await" | "move"
    )
}
