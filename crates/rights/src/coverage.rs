//! Finds what one set of rules allows beyond another, without enumerating all combinations.
//!
//! ```text
//!   wanted: groups × resources × verbs × names      held: for each value, the rules that contain it
//!           a, b     x, y, z     get                      a: {1, 3}   b: {3}   get: {1}   ...
//!
//!   a ─► {1, 3} ─┬─ x ─► {1} ─── get ─► {1}  held by rule 1
//!                └─ y ─► {}  no rule allows anything on a/y: missing
//! ```
//!
//! A rule of a thousand groups, resources, verbs and names is 24 KB, and 10¹² combinations. Most of them are held or
//! missing for the same reason: the held rules that match the first values decide the rest. So results are memoized by
//! the remaining rules, only missing subrules are listed, and both are bounded.

use std::collections::{HashMap, HashSet};

use crate::Rule;

/// Limits of the search for missing rules.
#[derive(Clone, Copy, Debug)]
pub struct CoverageLimits {
    /// How many subrules are listed.
    pub rules: usize,
    /// How many bytes their strings have in total.
    pub bytes: usize,
    /// How many times a held rule is examined.
    pub steps: usize,
}

impl Default for CoverageLimits {
    /// More than a user would read, within a fraction of a second.
    fn default() -> Self {
        Self {
            rules: 2_000,
            bytes: 64 * 1024,
            steps: 10_000_000,
        }
    }
}

/// What some rules allow and others do not, as a list of subrules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingRules {
    /// The missing [subrules](Rule::breakdown), in order.
    pub rules: Vec<Rule>,
    /// Whether a limit was reached, so that there may be more.
    pub truncated: bool,
}

impl MissingRules {
    /// Finds what `wanted` allows and `held` does not, like [`missing`](crate::missing) but within limits.
    pub fn find(held: &[Rule], wanted: &[Rule], limits: CoverageLimits) -> Self {
        let held = RuleIndex::new(held);
        let mut search = Search {
            held: &held,
            limits,
            found: Self::default(),
        };
        for rule in wanted {
            if search.found.truncated {
                break;
            }
            search.search_rule(rule);
        }
        search.found
    }

    /// Returns whether nothing is missing, for certain.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && !self.truncated
    }
}

/// Sorted rule numbers.
type RuleNumbers = Vec<u32>;

/// Index of the held rules by their values.
struct RuleIndex<'a> {
    groups: ValueIndex<'a>,
    resources: ValueIndex<'a>,
    verbs: ValueIndex<'a>,
    names: ValueIndex<'a>,
    paths: ValueIndex<'a>,
    /// Paths that end with a star, without the star.
    path_prefixes: ValueIndex<'a>,
    /// The lengths of these prefixes.
    prefix_lengths: Vec<usize>,
    /// All rules, and those for objects of any name.
    all_rules: RuleNumbers,
    rules_without_names: RuleNumbers,
}

/// The rules that contain each value of one list.
#[derive(Default)]
struct ValueIndex<'a> {
    by_value: HashMap<&'a str, RuleNumbers>,
    /// The rules with a wildcard.
    all: HashSet<u32>,
}

impl<'a> ValueIndex<'a> {
    fn insert(&mut self, text: &'a str, rule: u32) {
        let rules = self.by_value.entry(text).or_default();
        if rules.last() != Some(&rule) {
            rules.push(rule);
        }
    }

    fn rules_with(&self, text: &str) -> &[u32] {
        self.by_value.get(text).map_or(&[], Vec::as_slice)
    }
}

impl<'a> RuleIndex<'a> {
    fn new(rules: &'a [Rule]) -> Self {
        let [
            mut groups,
            mut resources,
            mut verbs,
            mut names,
            mut paths,
            mut path_prefixes,
        ] = std::array::from_fn(|_| ValueIndex::default());
        for (number, rule) in (0..).zip(rules) {
            for (having, texts) in [
                (&mut groups, &rule.api_groups),
                (&mut resources, &rule.resources),
                (&mut verbs, &rule.verbs),
            ] {
                for text in texts {
                    having.insert(text, number);
                    if text == "*" {
                        having.all.insert(number);
                    }
                }
            }
            if rule.resource_names.is_empty() {
                names.all.insert(number);
            }
            for name in &rule.resource_names {
                names.insert(name, number);
            }
            for path in &rule.non_resource_urls {
                paths.insert(path, number);
                if path.ends_with('*') {
                    path_prefixes.insert(path.trim_end_matches('*'), number);
                }
            }
        }
        let mut prefix_lengths: Vec<_> = path_prefixes.by_value.keys().map(|text| text.len()).collect();
        prefix_lengths.sort_unstable();
        prefix_lengths.dedup();
        let all_rules: RuleNumbers = (0..).zip(rules).map(|(number, _)| number).collect();
        let is_unnamed = |rule: &&u32| names.all.contains(rule);
        let rules_without_names = all_rules.iter().filter(is_unnamed).copied().collect();
        Self {
            groups,
            resources,
            verbs,
            names,
            paths,
            path_prefixes,
            prefix_lengths,
            all_rules,
            rules_without_names,
        }
    }

    /// `pods/log` matches itself and `*/log`.
    fn with_resource(&self, resource: &str) -> RuleNumbers {
        let own = self.resources.rules_with(resource);
        let of_all = match resource.split_once('/') {
            Some((_, part)) => self.resources.rules_with(&format!("*/{part}")),
            None => &[],
        };
        merged([own, of_all])
    }

    fn with_path(&self, path: &str) -> RuleNumbers {
        let lengths = self
            .prefix_lengths
            .iter()
            .take_while(|length| **length <= path.len());
        let beginnings = lengths
            .filter_map(|length| path.get(..*length))
            .map(|beginning| self.path_prefixes.rules_with(beginning));
        merged(beginnings.chain([self.paths.rules_with(path)]))
    }
}

fn merged<'r>(lists: impl IntoIterator<Item = &'r [u32]>) -> RuleNumbers {
    let mut rules: RuleNumbers = lists.into_iter().flatten().copied().collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// One list of a wanted rule.
struct Dimension<'a> {
    /// The values, each with its class.
    values: Vec<(&'a str, usize)>,
    /// Values that the same held rules contain form a class.
    classes: Vec<RuleNumbers>,
    /// The rules with a wildcard.
    all: &'a HashSet<u32>,
}

impl Dimension<'_> {
    /// Filters the rules for those that also match the values of a class.
    fn remaining(&self, rules: &[u32], class: usize) -> RuleNumbers {
        let class = &self.classes[class];
        let has = |rule: &&u32| self.all.contains(rule) || class.binary_search(rule).is_ok();
        rules.iter().filter(has).copied().collect()
    }
}

struct Search<'a> {
    held: &'a RuleIndex<'a>,
    limits: CoverageLimits,
    found: MissingRules,
}

impl<'a> Search<'a> {
    fn search_rule(&mut self, rule: &'a Rule) {
        let held = self.held;
        let mut dimensions = vec![
            self.dimension(&rule.api_groups, &held.groups.all, |group| {
                held.groups.rules_with(group).to_vec()
            }),
            self.dimension(&rule.resources, &held.resources.all, |resource| {
                held.with_resource(resource)
            }),
            self.dimension(&rule.verbs, &held.verbs.all, |verb| {
                held.verbs.rules_with(verb).to_vec()
            }),
        ];
        // A rule for all names also allows each single name; a rule for some names does not allow all.
        let first = if rule.resource_names.is_empty() {
            &held.rules_without_names
        } else {
            let names = &rule.resource_names;
            dimensions.push(self.dimension(names, &held.names.all, |name| {
                held.names.rules_with(name).to_vec()
            }));
            &held.all_rules
        };
        let atom = |texts: &[&str]| {
            let owned = |index: usize| vec![texts[index].to_owned()];
            Rule {
                api_groups: owned(0),
                resources: owned(1),
                verbs: owned(2),
                resource_names: texts
                    .get(3)
                    .map(|name| vec![(*name).to_owned()])
                    .unwrap_or_default(),
                ..Rule::default()
            }
        };
        self.collect_missing(&dimensions, first, &atom);
        if rule.non_resource_urls.is_empty() {
            return;
        }
        let dimensions = [
            self.dimension(&rule.non_resource_urls, &held.paths.all, |path| {
                held.with_path(path)
            }),
            self.dimension(&rule.verbs, &held.verbs.all, |verb| {
                held.verbs.rules_with(verb).to_vec()
            }),
        ];
        let atom = |texts: &[&str]| Rule::for_paths([texts[1]], [texts[0]]);
        self.collect_missing(&dimensions, &held.rules_without_names, &atom);
    }

    /// Groups values by the rules that contain them.
    fn dimension(
        &mut self,
        texts: &'a [String],
        all: &'a HashSet<u32>,
        with: impl Fn(&str) -> RuleNumbers,
    ) -> Dimension<'a> {
        let mut numbers: HashMap<RuleNumbers, usize> = HashMap::new();
        let mut dimension = Dimension {
            values: Vec::with_capacity(texts.len()),
            classes: Vec::new(),
            all,
        };
        for text in texts {
            let rules = with(text);
            if !self.use_steps(1 + rules.len()) {
                break;
            }
            let class = *numbers.entry(rules).or_insert_with_key(|rules| {
                dimension.classes.push(rules.clone());
                dimension.classes.len() - 1
            });
            dimension.values.push((text, class));
        }
        dimension
    }

    /// Lists the combinations of values that no rule allows.
    fn collect_missing(
        &mut self,
        dimensions: &[Dimension<'_>],
        rules: &[u32],
        atom: &dyn Fn(&[&str]) -> Rule,
    ) {
        // Nothing is wanted, or the limits are reached.
        if self.found.truncated || dimensions.iter().any(|dimension| dimension.values.is_empty()) {
            return;
        }
        let mut memo = dimensions.iter().map(|_| HashMap::new()).collect::<Vec<_>>();
        self.descend(dimensions, rules, &mut memo, &mut Vec::new(), atom);
    }

    fn descend<'t>(
        &mut self,
        dimensions: &[Dimension<'t>],
        rules: &[u32],
        memo: &mut [HashMap<RuleNumbers, bool>],
        chosen: &mut Vec<&'t str>,
        atom: &dyn Fn(&[&str]) -> Rule,
    ) {
        let Some((dimension, rest)) = dimensions.split_first() else {
            let bytes: usize = chosen.iter().map(|text| text.len()).sum();
            let Some(left) = self
                .limits
                .bytes
                .checked_sub(bytes)
                .filter(|_| self.limits.rules > 0)
            else {
                self.found.truncated = true;
                return;
            };
            self.limits.bytes = left;
            self.limits.rules -= 1;
            self.found.rules.push(atom(chosen));
            return;
        };
        let remaining: Vec<Option<RuleNumbers>> = (0..dimension.classes.len())
            .map(|class| {
                let remaining = self.remaining(dimension, rules, class);
                (!self.is_covered(rest, &remaining, &mut memo[1..])).then_some(remaining)
            })
            .collect();
        for (text, class) in &dimension.values {
            if self.found.truncated || !self.use_steps(1) {
                return;
            }
            // All combinations with this value are held.
            let Some(remaining) = &remaining[*class] else {
                continue;
            };
            chosen.push(text);
            self.descend(rest, remaining, &mut memo[1..], chosen, atom);
            chosen.pop();
        }
    }

    /// Returns whether the rules, which match all values chosen so far, allow all remaining combinations.
    fn is_covered(
        &mut self,
        dimensions: &[Dimension<'_>],
        rules: &[u32],
        memo: &mut [HashMap<RuleNumbers, bool>],
    ) -> bool {
        let Some((dimension, rest)) = dimensions.split_first() else {
            return !rules.is_empty();
        };
        if rules.is_empty() || self.found.truncated {
            return false;
        }
        if let Some(covered) = memo[0].get(rules) {
            return *covered;
        }
        let has_all = |rule: &u32| {
            let mut dimensions = dimensions.iter();
            dimensions.all(|dimension| dimension.all.contains(rule))
        };
        let covered = rules.iter().any(has_all)
            || (0..dimension.classes.len()).all(|class| {
                let remaining = self.remaining(dimension, rules, class);
                self.is_covered(rest, &remaining, &mut memo[1..])
            });
        memo[0].insert(rules.to_vec(), covered);
        covered
    }

    fn remaining(&mut self, dimension: &Dimension<'_>, rules: &[u32], class: usize) -> RuleNumbers {
        if !self.use_steps(1 + rules.len()) {
            return RuleNumbers::new();
        }
        dimension.remaining(rules, class)
    }

    /// Uses up steps; false if none are left: then everything not examined counts as missing.
    fn use_steps(&mut self, steps: usize) -> bool {
        match self.limits.steps.checked_sub(steps) {
            Some(left) => self.limits.steps = left,
            None => self.found.truncated = true,
        }
        !self.found.truncated
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::missing;

    fn texts(from: &'static [&'static str], least: usize) -> impl Strategy<Value = Vec<String>> {
        let one = proptest::sample::select(from).prop_map(str::to_owned);
        proptest::collection::vec(one, least..4)
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let parts = (
            texts(&["get", "list", "*"], 0),
            texts(&["", "apps", "*"], 0),
            texts(&["pods", "pods/log", "*/log", "jobs", "*"], 0),
            prop_oneof![Just(Vec::new()), texts(&["a", "b", "c"], 0)],
            prop_oneof![
                Just(Vec::new()),
                texts(&["/", "/a", "/a/*", "/a/b", "/é*", "*"], 0)
            ],
        );
        parts.prop_map(
            |(verbs, api_groups, resources, resource_names, non_resource_urls)| Rule {
                verbs,
                api_groups,
                resources,
                resource_names,
                non_resource_urls,
            },
        )
    }

    proptest! {
        #[test]
        fn missing_rules_equal_the_full_enumeration(
            held in proptest::collection::vec(rule(), 0..5),
            wanted in proptest::collection::vec(rule(), 0..4),
        ) {
            let found = MissingRules::find(&held, &wanted, CoverageLimits::default());
            prop_assert_eq!(found.rules, missing(&held, &wanted));
            prop_assert!(!found.truncated);
        }
    }

    fn numbered(count: usize) -> Vec<String> {
        (0..count).map(|index| format!("x{index}")).collect()
    }

    fn large() -> Rule {
        Rule {
            verbs: numbered(200),
            api_groups: numbered(200),
            resources: numbered(200),
            resource_names: numbered(200),
            non_resource_urls: Vec::new(),
        }
    }

    #[test]
    fn huge_combinations_are_decided_within_the_limits() {
        let wanted = [large()];
        let found = MissingRules::find(&wanted, &wanted, CoverageLimits::default());
        assert!(found.is_empty());
        let found = MissingRules::find(&[], &wanted, CoverageLimits::default());
        assert!(found.truncated);
        assert_eq!(found.rules.len(), CoverageLimits::default().rules);
        // One rule for each group.
        let each = |group: &String| Rule {
            api_groups: vec![group.clone()],
            ..large()
        };
        let mut held: Vec<_> = wanted[0].api_groups.iter().map(each).collect();
        assert!(MissingRules::find(&held, &wanted, CoverageLimits::default()).is_empty());
        // All but one.
        held[199].resource_names.pop();
        held[199].verbs.truncate(198);
        let found = MissingRules::find(&held, &wanted, CoverageLimits::default());
        assert!(found.truncated);
        assert!(found.rules.iter().all(|right| right.api_groups == ["x199"]));
    }

    #[test]
    fn undecided_rules_count_as_missing() {
        let rule = Rule::for_resources(["get"], ["a"], ["b"]);
        let none = CoverageLimits {
            steps: 0,
            ..CoverageLimits::default()
        };
        let found = MissingRules::find(std::slice::from_ref(&rule), std::slice::from_ref(&rule), none);
        assert!(!found.is_empty());
    }
}
