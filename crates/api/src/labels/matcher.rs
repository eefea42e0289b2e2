//! Selectors that are compared with many objects.

use super::{Operator, Requirement, Selector};

/// A [`Selector`] prepared for many objects. Its requirements are merged by key, so that a comparison takes no longer for
/// a selector of thousands of requirements or values than for a short one.
///
/// ```
/// use windlass_api::labels::{Matcher, Selector};
///
/// let selector: Selector = "app in (web,api),app!=api,!canary".parse()?;
/// let matcher = Matcher::from(selector);
/// assert!(matcher.matches(&[("app", "web"), ("tier", "front")]));
/// assert!(!matcher.matches(&[("app", "api")]));
/// # Ok::<_, windlass_api::labels::InvalidSelector>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// Sorted by key, one per key.
    rules: Vec<Rule>,
    /// How many of them need the label.
    required: usize,
}

/// All requirements on one label.
#[derive(Clone, Debug, Default)]
struct Rule {
    key: String,
    /// Sorted; any value without them.
    allowed: Option<Vec<String>>,
    /// Sorted.
    excluded: Vec<String>,
    must_exist: bool,
    must_be_absent: bool,
    above: Option<i64>,
    below: Option<i64>,
}

impl From<Selector> for Matcher {
    fn from(Selector(mut requirements): Selector) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        let mut rules: Vec<Rule> = Vec::new();
        for Requirement {
            key,
            operator,
            values,
        } in requirements
        {
            match rules.last_mut() {
                Some(rule) if rule.key == key => rule.add(operator, values),
                _ => {
                    let mut rule = Rule {
                        key,
                        ..Rule::default()
                    };
                    rule.add(operator, values);
                    rules.push(rule);
                }
            }
        }
        for rule in &mut rules {
            rule.excluded.sort_unstable();
        }
        let required = rules.iter().filter(|rule| rule.needs_label()).count();
        Self { rules, required }
    }
}

impl Matcher {
    /// Whether there are no requirements, so that everything matches.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether labels, which must be sorted by key, meet all requirements.
    pub fn matches<K: AsRef<str>, V: AsRef<str>>(&self, labels: &[(K, V)]) -> bool {
        // The smaller of the two is looked up in the other.
        if self.rules.len() <= labels.len() {
            return self.rules.iter().all(|rule| {
                let found = labels.binary_search_by(|(key, _)| key.as_ref().cmp(&rule.key));
                found.map_or(!rule.needs_label(), |place| rule.allows(labels[place].1.as_ref()))
            });
        }
        let mut met = 0;
        for (key, value) in labels {
            let key = key.as_ref();
            if let Ok(place) = self.rules.binary_search_by(|rule| (*rule.key).cmp(key)) {
                let rule = &self.rules[place];
                if !rule.allows(value.as_ref()) {
                    return false;
                }
                met += usize::from(rule.needs_label());
            }
        }
        met == self.required
    }
}

impl Rule {
    fn add(&mut self, operator: Operator, values: Vec<String>) {
        // A bound that is not a number is met by no label, and neither are these.
        let number = |other: i64| {
            let text = values.first().map_or("", String::as_str);
            text.parse().unwrap_or(other)
        };
        match operator {
            Operator::In => match &mut self.allowed {
                None => self.allowed = Some(values),
                Some(allowed) => allowed.retain(|value| values.binary_search(value).is_ok()),
            },
            Operator::NotIn => self.excluded.extend(values),
            Operator::Exists => self.must_exist = true,
            Operator::DoesNotExist => self.must_be_absent = true,
            Operator::GreaterThan => {
                let bound = number(i64::MAX);
                self.above = Some(self.above.map_or(bound, |above| above.max(bound)));
            }
            Operator::LessThan => {
                let bound = number(i64::MIN);
                self.below = Some(self.below.map_or(bound, |below| below.min(bound)));
            }
        }
    }

    /// Whether an object without the label does not match.
    fn needs_label(&self) -> bool {
        self.must_exist || self.allowed.is_some() || self.above.is_some() || self.below.is_some()
    }

    /// Whether a label with this value meets the requirements.
    fn allows(&self, value: &str) -> bool {
        let lists = |values: &[String]| values.binary_search_by(|known| (**known).cmp(value)).is_ok();
        let is_between = || {
            let number: Option<i64> = value.parse().ok();
            number.is_some_and(|number| {
                self.above.is_none_or(|above| number > above) && self.below.is_none_or(|below| number < below)
            })
        };
        !self.must_be_absent
            && self.allowed.as_deref().is_none_or(lists)
            && (self.excluded.is_empty() || !lists(&self.excluded))
            && (self.above.is_none() && self.below.is_none() || is_between())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requirement() -> impl Strategy<Value = String> {
        prop::sample::select(vec![
            "a",
            "!a",
            "a=1",
            "a!=1",
            "a in (1,2)",
            "a notin (1,2,3)",
            "a>1",
            "a<3",
            "b",
            "!b",
            "b=x",
            "b!=x",
            "b in (x,y)",
            "b notin (y)",
            "b>1",
            "c",
            "!c",
            "c=",
            "c!=",
            "d notin (1)",
        ])
        .prop_map(str::to_owned)
    }

    proptest! {
        #[test]
        fn matcher_agrees_with_selector(
            requirements in prop::collection::vec(requirement(), 0..6),
            labels in prop::collection::btree_map("[a-c]", "[1-4x-z]?", 0..4),
        ) {
            let selector: Selector = requirements.join(",").parse().expect("valid");
            let expected = selector.matches_map(&labels);
            let labels: Vec<_> = labels.into_iter().collect();
            prop_assert_eq!(Matcher::from(selector).matches(&labels), expected);
        }
    }

    #[test]
    fn contradictions_match_nothing() {
        for text in ["a,!a", "a=1,a=2", "a=1,a!=1", "a>1,a<2", "a>9223372036854775807"] {
            let matcher = Matcher::from(text.parse::<Selector>().expect("valid"));
            for value in ["", "1", "2"] {
                assert!(!matcher.matches(&[("a", value)]), "{text}");
            }
            assert!(!matcher.matches::<&str, &str>(&[]), "{text}");
        }
    }
}
