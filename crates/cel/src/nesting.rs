//! How deep the parser would recurse.
//!
//! cel-go refuses more than 250 open expressions while it parses (`((a))` opens three), and a tree of more than 250
//! operators, selections and indexes when it visits the result. This counts the same from the tokens, before the parser
//! recurses.

/// The open rules of one level of parentheses, besides the first of each.
#[derive(Clone, Copy, Default)]
struct Level {
    /// `c ? x : d ? y : z` is an expression in an expression.
    conditionals: usize,
    relations: usize,
    sums: usize,
    members: usize,
}

impl Level {
    fn plus(self, other: Self) -> Self {
        Self {
            conditionals: self.conditionals + other.conditionals + 1,
            relations: self.relations + other.relations,
            sums: self.sums + other.sums,
            members: self.members + other.members,
        }
    }

    fn operators(self) -> usize {
        1 + self.relations + self.sums + self.members
    }
}

/// The greatest numbers of rules that are open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nesting {
    /// Parentheses, brackets, braces and conditionals.
    pub(crate) expressions: usize,
    /// Comparisons, sums and members, in which the visitor of the parsed tree recurses.
    pub(crate) operators: usize,
}

/// Measures the nesting of an expression.
pub(crate) fn nesting(text: &str) -> Nesting {
    // For each open parenthesis, the sum of the levels outside of it, and whether it is an index.
    let mut outer = vec![(Level::default(), false)];
    let mut inner = Level::default();
    let mut greatest = Nesting {
        expressions: 1,
        operators: 1,
    };
    let bytes = text.as_bytes();
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        let next = bytes.get(index + 1).copied();
        let mut length = 1;
        match byte {
            b'"' | b'\'' => length = string_length(bytes, index),
            b'/' if next == Some(b'/') => {
                length = bytes[index..]
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(bytes.len() - index);
            }
            b'(' | b'[' | b'{' => {
                // An index is one more member; a list is not.
                let before = text[..index].trim_end().bytes().last();
                let is_index = byte == b'['
                    && before.is_some_and(|byte| {
                        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b')' | b']' | b'}')
                    });
                let sum = outer.last().copied().unwrap_or_default().0.plus(inner);
                outer.push((sum, is_index));
                inner = Level::default();
            }
            b')' | b']' | b'}' if outer.len() > 1 => {
                // The level below goes on as it was, without what the closed one added.
                let (closed, is_index) = outer.pop().unwrap_or_default();
                let (below, _) = outer.last().copied().unwrap_or_default();
                inner = Level {
                    conditionals: closed.conditionals - below.conditionals - 1,
                    relations: closed.relations - below.relations,
                    sums: closed.sums - below.sums,
                    members: closed.members - below.members + usize::from(is_index),
                };
            }
            b'.' => inner.members += 1,
            b'?' | b':' => {
                inner = Level {
                    conditionals: inner.conditionals + usize::from(byte == b':'),
                    ..Level::default()
                }
            }
            b',' => inner = Level::default(),
            b'&' | b'|' => {
                inner = Level {
                    conditionals: inner.conditionals,
                    ..Level::default()
                }
            }
            b'<' | b'>' | b'=' => {
                inner.sums = 0;
                inner.members = 0;
                inner.relations += 1;
                length = 1 + usize::from(next == Some(b'='));
            }
            b'!' if next == Some(b'=') => {
                inner.sums = 0;
                inner.members = 0;
                inner.relations += 1;
                length = 2;
            }
            b'i' if is_word(bytes, index, b"in") => {
                inner.sums = 0;
                inner.members = 0;
                inner.relations += 1;
                length = 2;
            }
            // Any number of signs before an operand is one operator.
            b'-' if is_sign(text, index) => {}
            b'+' | b'-' | b'*' | b'/' | b'%' => {
                inner.members = 0;
                inner.sums += 1;
            }
            _ => {}
        }
        let open = outer.last().copied().unwrap_or_default().0.plus(inner);
        greatest.expressions = greatest.expressions.max(open.conditionals);
        greatest.operators = greatest.operators.max(open.operators());
        index += length;
    }
    greatest
}

/// Whether a minus is a sign, not a subtraction.
fn is_sign(text: &str, index: usize) -> bool {
    let before = text[..index].trim_end().bytes().last();
    !before.is_some_and(|byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b')' | b']' | b'}' | b'"' | b'\'')
    })
}

fn is_word(bytes: &[u8], index: usize, word: &[u8]) -> bool {
    let is_letter =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    bytes[index..].starts_with(word)
        && !is_letter(bytes.get(index + word.len()))
        && !(index > 0 && is_letter(bytes.get(index - 1)))
}

/// The length of the string literal whose opening quote is at `start`.
fn string_length(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let triple = bytes[start..].starts_with(&[quote; 3]);
    let prefix = &bytes[start.saturating_sub(2)..start];
    let raw = prefix.iter().any(|byte| matches!(byte, b'r' | b'R'))
        && prefix
            .last()
            .is_some_and(|byte| matches!(byte, b'r' | b'R' | b'b' | b'B'));
    let mut index = start + if triple { 3 } else { 1 };
    while let Some(byte) = bytes.get(index) {
        if *byte == b'\\' && !raw {
            index += 2;
        } else if !triple && (*byte == quote || *byte == b'\n') {
            return index + 1 - start;
        } else if triple && bytes[index..].starts_with(&[quote; 3]) {
            return index + 3 - start;
        } else {
            index += 1;
        }
    }
    bytes.len() - start
}

#[cfg(test)]
mod tests {
    use super::{Nesting, nesting};

    #[test]
    fn nesting_counts_each_rule() {
        for (text, expressions, operators) in [
            ("a", 1, 1),
            ("((a))", 3, 1),
            ("a + b + c", 1, 3),
            ("a.b.c", 1, 3),
            ("a[b][c]", 2, 3),
            ("---a", 1, 1),
            ("'((('", 1, 1),
            (r"r'\' + (a)", 2, 2),
            ("[[1], [2], [3]]", 3, 1),
            ("a ? b : c ? d : e", 3, 1),
            ("a && b && c && d", 1, 1),
            ("// (((((", 1, 1),
            (")))", 1, 1),
        ] {
            let expected = Nesting {
                expressions,
                operators,
            };
            assert_eq!(nesting(text), expected, "{text}");
        }
    }
}
