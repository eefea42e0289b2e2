//! Unified diff of two texts, like `diff -u`.
//!
//! Lines are matched like Python's difflib, which Go's libraries are ported from: the longest run of equal lines first,
//! then recursively left and right of it. In a long text, popular lines do not start a run.

use std::{collections::HashMap, fmt::Write};

/// Number of equal lines shown around a change.
const CONTEXT: usize = 3;

/// From this number of lines on, a line that makes up more than a hundredth of them is popular and starts no run.
const POPULAR_MIN_LINES: usize = 200;

/// Limit on compared pairs of lines, for each line of both texts. The rest counts as changed: comparing all pairs would
/// take hours for a request of the maximum size.
const MAX_PAIRS_PER_LINE: usize = 100;

/// A run of equal lines: its start in both texts and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MatchingBlock {
    old: usize,
    new: usize,
    length: usize,
}

/// The hunks in which two texts differ; empty if they are equal.
pub(super) fn unified_diff(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut text = String::new();
    let mut pairs = MAX_PAIRS_PER_LINE * (old.len() + new.len());
    for hunk in hunks(&matching_blocks(&old, &new, &mut pairs)) {
        let (first, last) = (hunk[0], hunk[hunk.len() - 1]);
        let _ = writeln!(
            text,
            "@@ -{} +{} @@",
            range(first.old.0, last.old.1),
            range(first.new.0, last.new.1)
        );
        for change in hunk {
            if change.equal {
                push_lines(&mut text, ' ', &old[change.old.0..change.old.1]);
            } else {
                push_lines(&mut text, '-', &old[change.old.0..change.old.1]);
                push_lines(&mut text, '+', &new[change.new.0..change.new.1]);
            }
        }
    }
    text
}

fn push_lines(text: &mut String, mark: char, lines: &[&str]) {
    for line in lines {
        let _ = writeln!(text, "{mark}{line}");
    }
}

fn range(start: usize, end: usize) -> String {
    match end - start {
        1 => format!("{}", start + 1),
        0 => format!("{start},0"),
        length => format!("{},{length}", start + 1),
    }
}

/// A range of both texts that is equal or different.
#[derive(Clone, Copy, Debug)]
struct Change {
    equal: bool,
    old: (usize, usize),
    new: (usize, usize),
}

/// Groups changes with their context into hunks.
fn hunks(runs: &[MatchingBlock]) -> Vec<Vec<Change>> {
    let mut changes: Vec<Change> = Vec::new();
    let (mut old, mut new) = (0, 0);
    for run in runs {
        if old < run.old || new < run.new {
            changes.push(Change {
                equal: false,
                old: (old, run.old),
                new: (new, run.new),
            });
        }
        (old, new) = (run.old + run.length, run.new + run.length);
        if run.length > 0 {
            changes.push(Change {
                equal: true,
                old: (run.old, old),
                new: (run.new, new),
            });
        }
    }
    let keep_end = |change: &mut Change| {
        change.old.0 = change.old.0.max(change.old.1.saturating_sub(CONTEXT));
        change.new.0 = change.new.0.max(change.new.1.saturating_sub(CONTEXT));
    };
    let keep_start = |change: &mut Change| {
        change.old.1 = change.old.1.min(change.old.0 + CONTEXT);
        change.new.1 = change.new.1.min(change.new.0 + CONTEXT);
    };
    if let Some(first) = changes.first_mut().filter(|change| change.equal) {
        keep_end(first);
    }
    if let Some(last) = changes.last_mut().filter(|change| change.equal) {
        keep_start(last);
    }
    let (mut hunks, mut hunk) = (Vec::new(), Vec::new());
    for change in changes {
        if change.equal && change.old.1 - change.old.0 > 2 * CONTEXT {
            let (mut before, mut after) = (change, change);
            keep_start(&mut before);
            keep_end(&mut after);
            hunk.push(before);
            hunks.push(std::mem::take(&mut hunk));
            hunk.push(after);
        } else {
            hunk.push(change);
        }
    }
    hunks.push(hunk);
    hunks.retain(|hunk| hunk.iter().any(|change| !change.equal));
    hunks
}

/// The runs of equal lines that are found within the limit of pairs, in order, and an empty run at the end.
fn matching_blocks(old: &[&str], new: &[&str], pairs: &mut usize) -> Vec<MatchingBlock> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(index);
    }
    if new.len() >= POPULAR_MIN_LINES {
        let most = new.len() / 100 + 1;
        places.retain(|_, found| found.len() <= most);
    }
    let (mut open, mut found) = (vec![(0, old.len(), 0, new.len())], Vec::new());
    while let Some((old_start, old_end, new_start, new_end)) = open.pop() {
        if *pairs == 0 {
            break;
        }
        let within = (old_start..old_end, new_start..new_end);
        let run = longest_match(old, new, &places, within, pairs);
        if run.length > 0 {
            found.push(run);
            open.push((old_start, run.old, new_start, run.new));
            open.push((run.old + run.length, old_end, run.new + run.length, new_end));
        }
    }
    found.sort_unstable();
    let mut joined: Vec<MatchingBlock> = Vec::new();
    for run in found {
        match joined.last_mut() {
            Some(last) if last.old + last.length == run.old && last.new + last.length == run.new => {
                last.length += run.length;
            }
            _ => joined.push(run),
        }
    }
    joined.push(MatchingBlock {
        old: old.len(),
        new: new.len(),
        length: 0,
    });
    joined
}

type Span = std::ops::Range<usize>;

/// The longest run within ranges of both texts; of several, the first.
fn longest_match(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    within: (Span, Span),
    pairs: &mut usize,
) -> MatchingBlock {
    let (in_old, in_new) = within;
    let mut best = MatchingBlock {
        old: in_old.start,
        new: in_new.start,
        length: 0,
    };
    // Length of the run that ends at each line of the new text and the previous line of the old.
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for index in in_old.clone() {
        let mut longer = HashMap::new();
        *pairs = pairs.saturating_sub(1);
        for place in places.get(old[index]).into_iter().flatten() {
            if *pairs == 0 {
                return best;
            }
            *pairs -= 1;
            if !in_new.contains(place) {
                continue;
            }
            let before = place.checked_sub(1).and_then(|before| lengths.get(&before));
            let length = before.copied().unwrap_or(0) + 1;
            longer.insert(*place, length);
            if length > best.length {
                best = MatchingBlock {
                    old: index + 1 - length,
                    new: place + 1 - length,
                    length,
                };
            }
        }
        lengths = longer;
    }
    while best.old > in_old.start && best.new > in_new.start && old[best.old - 1] == new[best.new - 1] {
        best = MatchingBlock {
            old: best.old - 1,
            new: best.new - 1,
            length: best.length + 1,
        };
    }
    while best.old + best.length < in_old.end
        && best.new + best.length < in_new.end
        && old[best.old + best.length] == new[best.new + best.length]
    {
        best.length += 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_show_three_lines_around_a_change() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni";
        let new = "a\nb\nc\nd\nE\nf\ng\nh\ni";
        assert_eq!(
            unified_diff(old, new),
            "@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n"
        );
        assert_eq!(unified_diff(old, old), "");
        assert_eq!(unified_diff("a", "b"), "@@ -1 +1 @@\n-a\n+b\n");
        assert_eq!(unified_diff("a\nb", "a"), "@@ -1,2 +1 @@\n a\n-b\n");
    }

    #[test]
    fn long_texts_are_compared_in_a_bounded_number_of_steps() {
        let lines = |name: &str| -> Vec<String> {
            let line = |index| {
                if index % 2 == 0 {
                    format!("{index}")
                } else {
                    format!("{name}{index}")
                }
            };
            (0..20_000).map(line).collect()
        };
        let (old, new) = (lines("a"), lines("b"));
        let (old, new): (Vec<_>, Vec<_>) = (
            old.iter().map(String::as_str).collect(),
            new.iter().map(String::as_str).collect(),
        );
        let mut pairs = MAX_PAIRS_PER_LINE * 40_000;
        let found = matching_blocks(&old, &new, &mut pairs);
        assert_eq!(pairs, 0, "the limit was not reached");
        assert!(found.len() > 100, "{}", found.len());
        assert!(
            found
                .iter()
                .all(|run| old[run.old..run.old + run.length] == new[run.new..run.new + run.length])
        );
        let shown = unified_diff(&old.join("\n"), &new.join("\n"));
        assert!(shown.lines().filter(|line| line.starts_with('-')).count() < 20_000);
    }

    #[test]
    fn distant_changes_are_separate_hunks() {
        let old: Vec<_> = (0..30).map(|line| line.to_string()).collect();
        let mut new = old.clone();
        new[3] = "x".to_owned();
        new.insert(20, "y".to_owned());
        let text = unified_diff(&old.join("\n"), &new.join("\n"));
        let heads: Vec<_> = text.lines().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(heads, ["@@ -1,7 +1,7 @@", "@@ -18,6 +18,7 @@"]);
    }

    #[test]
    fn diff_turns_the_old_text_into_the_new() {
        // With no change far from another, the kept and added lines are the new text.
        let (old, new) = ("a\nb\nb\nc\nb", "b\na\nb\nc\nd\nb");
        let shown = unified_diff(old, new);
        let of = |marks: [char; 2]| -> Vec<&str> {
            shown
                .lines()
                .skip(1)
                .filter(|line| line.starts_with(marks))
                .map(|line| &line[1..])
                .collect()
        };
        assert_eq!(of([' ', '-']).join("\n"), old);
        assert_eq!(of([' ', '+']).join("\n"), new);
    }
}
