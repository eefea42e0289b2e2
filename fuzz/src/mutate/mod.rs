//! Mutations of inputs: as bytes, as JSON trees, as protobuf messages.

pub(crate) mod bytes;
pub(crate) mod dictionary;
pub(crate) mod protobuf;
pub(crate) mod tree;

/// Returns how deep brackets and YAML dashes are nested, including those in strings: an upper bound for the depth of
/// the parsed value.
pub(crate) fn depth(input: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    // `- - - x` and an indented `a:` open a level without a bracket.
    let mut block = 0_usize;
    let mut at_start = true;
    let mut indentation = 0_usize;
    for byte in input {
        match byte {
            b'\n' => {
                at_start = true;
                indentation = 0;
                block = 0;
                continue;
            }
            b' ' if at_start => {
                indentation += 1;
                continue;
            }
            b'-' | b'?' if at_start => block += 1,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at_start = at_start && matches!(byte, b'-' | b'?');
        deepest = deepest.max(depth + block + indentation / 2);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn depth_counts_brackets_dashes_and_indentation() {
        assert_eq!(depth(b"{\"a\": [1, [2]], \"b\": {}}"), 3);
        assert_eq!(depth(b"- - - a\n- b\n"), 4);
        assert_eq!(depth(b"a:\n  b:\n    c: [x]\n"), 3);
        assert_eq!(depth("[".repeat(500).as_bytes()), 500);
    }
}
