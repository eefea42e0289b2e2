//! What one set of rules has beyond another, without multiplying them out.
//!
//! ```text
//!   wanted: groups × resources × verbs × names      held: for each of them, which rules have it
//!           a, b     x, y, z     get                      a: {1, 3}   b: {3}   get: {1}   ...
//!
//!   a ─► {1, 3} ─┬─ x ─► {1} ─── get ─► {1}  held by rule 1
//!                └─ y ─► {}  no rule has anything of a/y: missing
//! ```
//!
//! A rule of a thousand groups, resources, verbs and names is 24 KB, and a million million rights. Most of them are held or
//! missing for the same reason: what remains of the held rules after the first choices decides the rest. The answer for
//! what remains is remembered, only what is missing is listed, and there is an end to both.

use std::collections::{HashMap, HashSet};

use crate::Rule;

/// Where looking for what is missing ends.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many rights are listed.
    pub rights: usize,
    /// How many bytes their texts have together.
    pub bytes: usize,
    /// How many held rules are looked at, each as often as it is.
    pub steps: usize,
}

impl Default for Limits {
    /// More than anybody reads, and a fraction of a second.
    fn default() -> Self {
        Self {
            rights: 2_000,
            bytes: 64 * 1024,
            steps: 10_000_000,
        }
    }
}

/// What some rules allow and others do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// As [atoms](Rule::atoms), in their order.
    pub rights: Vec<Rule>,
    /// Whether there may be more than these: the limits were reached.
    pub more: bool,
}

impl Missing {
    /// What `wanted` allows and `held` does not: [`missing`](crate::missing), within limits.
    pub fn find(held: &[Rule], wanted: &[Rule], limits: Limits) -> Self {
        let held = Held::new(held);
        let mut search = Search {
            held: &held,
            limits,
            found: Self::default(),
        };
        for rule in wanted {
            if search.found.more {
                break;
            }
            search.look(rule);
        }
        search.found
    }

    /// Whether nothing is missing, for certain.
    pub fn is_nothing(&self) -> bool {
        self.rights.is_empty() && !self.more
    }
}

/// The numbers of rules, in order.
type Rules = Vec<u32>;

/// Which of the held rules have what.
struct Held<'a> {
    groups: Having<'a>,
    resources: Having<'a>,
    verbs: Having<'a>,
    names: Having<'a>,
    paths: Having<'a>,
    /// Paths that end with a star, without it.
    beginnings: Having<'a>,
    /// How long these are.
    lengths: Vec<usize>,
    /// All rules, and those that are about objects of any name.
    everyone: Rules,
    unnamed: Rules,
}

/// Which rules have something.
#[derive(Default)]
struct Having<'a> {
    by_text: HashMap<&'a str, Rules>,
    /// Those that have all of its kind.
    all: HashSet<u32>,
}

impl<'a> Having<'a> {
    fn note(&mut self, text: &'a str, rule: u32) {
        let rules = self.by_text.entry(text).or_default();
        if rules.last() != Some(&rule) {
            rules.push(rule);
        }
    }

    fn of(&self, text: &str) -> &[u32] {
        self.by_text.get(text).map_or(&[], Vec::as_slice)
    }
}

impl<'a> Held<'a> {
    fn new(rules: &'a [Rule]) -> Self {
        let [
            mut groups,
            mut resources,
            mut verbs,
            mut names,
            mut paths,
            mut beginnings,
        ] = std::array::from_fn(|_| Having::default());
        for (number, rule) in (0..).zip(rules) {
            for (having, texts) in [
                (&mut groups, &rule.api_groups),
                (&mut resources, &rule.resources),
                (&mut verbs, &rule.verbs),
            ] {
                for text in texts {
                    having.note(text, number);
                    if text == "*" {
                        having.all.insert(number);
                    }
                }
            }
            if rule.resource_names.is_empty() {
                names.all.insert(number);
            }
            for name in &rule.resource_names {
                names.note(name, number);
            }
            for path in &rule.non_resource_urls {
                paths.note(path, number);
                if path.ends_with('*') {
                    beginnings.note(path.trim_end_matches('*'), number);
                }
            }
        }
        let mut lengths: Vec<_> = beginnings.by_text.keys().map(|text| text.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let everyone: Rules = (0..).zip(rules).map(|(number, _)| number).collect();
        let is_unnamed = |rule: &&u32| names.all.contains(rule);
        let unnamed = everyone.iter().filter(is_unnamed).copied().collect();
        Self {
            groups,
            resources,
            verbs,
            names,
            paths,
            beginnings,
            lengths,
            everyone,
            unnamed,
        }
    }

    /// `pods/log` is a resource of its own, and one of `*/log`.
    fn with_resource(&self, resource: &str) -> Rules {
        let own = self.resources.of(resource);
        let of_all = match resource.split_once('/') {
            Some((_, part)) => self.resources.of(&format!("*/{part}")),
            None => &[],
        };
        merged([own, of_all])
    }

    fn with_path(&self, path: &str) -> Rules {
        let lengths = self.lengths.iter().take_while(|length| **length <= path.len());
        let beginnings = lengths
            .filter_map(|length| path.get(..*length))
            .map(|beginning| self.beginnings.of(beginning));
        merged(beginnings.chain([self.paths.of(path)]))
    }
}

fn merged<'r>(lists: impl IntoIterator<Item = &'r [u32]>) -> Rules {
    let mut rules: Rules = lists.into_iter().flatten().copied().collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// One of the lists of a wanted rule.
struct Dimension<'a> {
    /// Its texts, each with the class that it is of.
    texts: Vec<(&'a str, usize)>,
    /// Texts that the same held rules have are of one class.
    classes: Vec<Rules>,
    /// The rules that have all there is.
    all: &'a HashSet<u32>,
}

impl Dimension<'_> {
    /// Of the rules, those that have the texts of a class too.
    fn remaining(&self, rules: &[u32], class: usize) -> Rules {
        let class = &self.classes[class];
        let has = |rule: &&u32| self.all.contains(rule) || class.binary_search(rule).is_ok();
        rules.iter().filter(has).copied().collect()
    }
}

struct Search<'a> {
    held: &'a Held<'a>,
    limits: Limits,
    found: Missing,
}

impl<'a> Search<'a> {
    fn look(&mut self, rule: &'a Rule) {
        let held = self.held;
        let mut dimensions = vec![
            self.dimension(&rule.api_groups, &held.groups.all, |group| {
                held.groups.of(group).to_vec()
            }),
            self.dimension(&rule.resources, &held.resources.all, |resource| {
                held.with_resource(resource)
            }),
            self.dimension(&rule.verbs, &held.verbs.all, |verb| held.verbs.of(verb).to_vec()),
        ];
        // Who may do something to all objects may do it to any; who may do it to some may not do it to all.
        let first = if rule.resource_names.is_empty() {
            &held.unnamed
        } else {
            let names = &rule.resource_names;
            dimensions.push(self.dimension(names, &held.names.all, |name| held.names.of(name).to_vec()));
            &held.everyone
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
        self.list(&dimensions, first, &atom);
        if rule.non_resource_urls.is_empty() {
            return;
        }
        let dimensions = [
            self.dimension(&rule.non_resource_urls, &held.paths.all, |path| {
                held.with_path(path)
            }),
            self.dimension(&rule.verbs, &held.verbs.all, |verb| held.verbs.of(verb).to_vec()),
        ];
        let atom = |texts: &[&str]| Rule::on_paths([texts[1]], [texts[0]]);
        self.list(&dimensions, &held.unnamed, &atom);
    }

    /// Sorts texts by which rules have them.
    fn dimension(
        &mut self,
        texts: &'a [String],
        all: &'a HashSet<u32>,
        with: impl Fn(&str) -> Rules,
    ) -> Dimension<'a> {
        let mut numbers: HashMap<Rules, usize> = HashMap::new();
        let mut dimension = Dimension {
            texts: Vec::with_capacity(texts.len()),
            classes: Vec::new(),
            all,
        };
        for text in texts {
            let rules = with(text);
            if !self.step(1 + rules.len()) {
                break;
            }
            let class = *numbers.entry(rules).or_insert_with_key(|rules| {
                dimension.classes.push(rules.clone());
                dimension.classes.len() - 1
            });
            dimension.texts.push((text, class));
        }
        dimension
    }

    /// Lists what of a product of lists no rule has.
    fn list(&mut self, dimensions: &[Dimension<'_>], rules: &[u32], atom: &dyn Fn(&[&str]) -> Rule) {
        // Nothing is wanted, or there was no time to find out.
        if self.found.more || dimensions.iter().any(|dimension| dimension.texts.is_empty()) {
            return;
        }
        let mut known = dimensions.iter().map(|_| HashMap::new()).collect::<Vec<_>>();
        self.descend(dimensions, rules, &mut known, &mut Vec::new(), atom);
    }

    fn descend<'t>(
        &mut self,
        dimensions: &[Dimension<'t>],
        rules: &[u32],
        known: &mut [HashMap<Rules, bool>],
        chosen: &mut Vec<&'t str>,
        atom: &dyn Fn(&[&str]) -> Rule,
    ) {
        let Some((dimension, rest)) = dimensions.split_first() else {
            let bytes: usize = chosen.iter().map(|text| text.len()).sum();
            let Some(left) = self
                .limits
                .bytes
                .checked_sub(bytes)
                .filter(|_| self.limits.rights > 0)
            else {
                self.found.more = true;
                return;
            };
            self.limits.bytes = left;
            self.limits.rights -= 1;
            self.found.rights.push(atom(chosen));
            return;
        };
        let remaining: Vec<Option<Rules>> = (0..dimension.classes.len())
            .map(|class| {
                let remaining = self.remaining(dimension, rules, class);
                (!self.is_covered(rest, &remaining, &mut known[1..])).then_some(remaining)
            })
            .collect();
        for (text, class) in &dimension.texts {
            if self.found.more || !self.step(1) {
                return;
            }
            // All of it is held.
            let Some(remaining) = &remaining[*class] else {
                continue;
            };
            chosen.push(text);
            self.descend(rest, remaining, &mut known[1..], chosen, atom);
            chosen.pop();
        }
    }

    /// Whether the rules, which have all that was chosen so far, have all that can be chosen yet.
    fn is_covered(
        &mut self,
        dimensions: &[Dimension<'_>],
        rules: &[u32],
        known: &mut [HashMap<Rules, bool>],
    ) -> bool {
        let Some((dimension, rest)) = dimensions.split_first() else {
            return !rules.is_empty();
        };
        if rules.is_empty() || self.found.more {
            return false;
        }
        if let Some(covered) = known[0].get(rules) {
            return *covered;
        }
        let has_all = |rule: &u32| {
            let mut dimensions = dimensions.iter();
            dimensions.all(|dimension| dimension.all.contains(rule))
        };
        let covered = rules.iter().any(has_all)
            || (0..dimension.classes.len()).all(|class| {
                let remaining = self.remaining(dimension, rules, class);
                self.is_covered(rest, &remaining, &mut known[1..])
            });
        known[0].insert(rules.to_vec(), covered);
        covered
    }

    fn remaining(&mut self, dimension: &Dimension<'_>, rules: &[u32], class: usize) -> Rules {
        if !self.step(1 + rules.len()) {
            return Rules::new();
        }
        dimension.remaining(rules, class)
    }

    /// Takes so many steps; false if there are none left, and then what was not looked at counts as missing.
    fn step(&mut self, steps: usize) -> bool {
        match self.limits.steps.checked_sub(steps) {
            Some(left) => self.limits.steps = left,
            None => self.found.more = true,
        }
        !self.found.more
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
        fn missing_rights_are_those_of_the_rules_multiplied_out(
            held in proptest::collection::vec(rule(), 0..5),
            wanted in proptest::collection::vec(rule(), 0..4),
        ) {
            let found = Missing::find(&held, &wanted, Limits::default());
            prop_assert_eq!(found.rights, missing(&held, &wanted));
            prop_assert!(!found.more);
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
    fn a_product_of_more_than_a_thousand_million_is_decided() {
        let wanted = [large()];
        let found = Missing::find(&wanted, &wanted, Limits::default());
        assert!(found.is_nothing());
        let found = Missing::find(&[], &wanted, Limits::default());
        assert!(found.more);
        assert_eq!(found.rights.len(), Limits::default().rights);
        // A rule for each of the groups.
        let each = |group: &String| Rule {
            api_groups: vec![group.clone()],
            ..large()
        };
        let mut held: Vec<_> = wanted[0].api_groups.iter().map(each).collect();
        assert!(Missing::find(&held, &wanted, Limits::default()).is_nothing());
        // All but one.
        held[199].resource_names.pop();
        held[199].verbs.truncate(198);
        let found = Missing::find(&held, &wanted, Limits::default());
        assert!(found.more);
        assert!(found.rights.iter().all(|right| right.api_groups == ["x199"]));
    }

    #[test]
    fn what_cannot_be_decided_in_time_is_not_held() {
        let rule = Rule::on(["get"], ["a"], ["b"]);
        let none = Limits {
            steps: 0,
            ..Limits::default()
        };
        let found = Missing::find(std::slice::from_ref(&rule), std::slice::from_ref(&rule), none);
        assert!(!found.is_nothing());
    }
}
