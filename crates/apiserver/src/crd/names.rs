//! Name conflicts between the CRDs of a group.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    conditions::{Condition, NAMES_ACCEPTED, NO_CONFLICTS},
    list, text,
};

/// The names in use by other CRDs of the group.
#[derive(Debug, Default)]
pub(super) struct NamesInUse {
    resources: HashSet<String>,
    kinds: HashSet<String>,
}

impl NamesInUse {
    /// Adds the accepted names of a CRD.
    pub(super) fn add(&mut self, accepted: &Value) {
        let short = list(&accepted["shortNames"]).iter().map(text);
        let resources = [text(&accepted["plural"]), text(&accepted["singular"])];
        self.resources
            .extend(resources.into_iter().chain(short).map(str::to_owned));
        let kinds = [text(&accepted["kind"]), text(&accepted["listKind"])];
        self.kinds.extend(kinds.map(str::to_owned));
    }
}

/// Accepts the requested names that are free. Returns the accepted names and the `NamesAccepted` condition; a name that
/// is in use keeps its previous value.
pub(super) fn accept(wanted: &Value, accepted: &Value, taken: &NamesInUse) -> (Value, Condition) {
    let mut names: Map<String, Value> = accepted.as_object().cloned().unwrap_or_default();
    let mut condition = Condition::from(NO_CONFLICTS);
    let mut refuse = |reason: &'static str, message: String| {
        condition = Condition {
            kind: NAMES_ACCEPTED,
            status: "False",
            reason,
            message,
        };
    };
    let in_use = |name: &str| format!("{name:?} is already in use");
    let free = |key: &str, used: &HashSet<String>| {
        let name = text(&wanted[key]);
        name == text(&accepted[key]) || !used.contains(name)
    };
    for (key, used, reason) in [
        ("plural", &taken.resources, "PluralConflict"),
        ("singular", &taken.resources, "SingularConflict"),
    ] {
        if free(key, used) {
            copy_name(&mut names, wanted, key);
        } else {
            refuse(reason, in_use(text(&wanted[key])));
        }
    }
    let own = list(&accepted["shortNames"]);
    let clashes: Vec<_> = list(&wanted["shortNames"])
        .iter()
        .filter(|name| !own.contains(name) && taken.resources.contains(text(name)))
        .map(|name| in_use(text(name)))
        .collect();
    match &clashes[..] {
        [] => copy_name(&mut names, wanted, "shortNames"),
        [one] => refuse("ShortNamesConflict", one.clone()),
        several => refuse("ShortNamesConflict", format!("[{}]", several.join(", "))),
    }
    for (key, used, reason) in [
        ("kind", &taken.kinds, "KindConflict"),
        ("listKind", &taken.kinds, "ListKindConflict"),
    ] {
        if free(key, used) {
            copy_name(&mut names, wanted, key);
        } else {
            refuse(reason, in_use(text(&wanted[key])));
        }
    }
    copy_name(&mut names, wanted, "categories");
    // These two are always serialized.
    for key in ["plural", "kind"] {
        names.entry(key).or_insert_with(|| "".into());
    }
    (names.into(), condition)
}

fn copy_name(names: &mut Map<String, Value>, wanted: &Value, key: &str) {
    match wanted.get(key) {
        Some(name) => names.insert(key.to_owned(), name.clone()),
        None => names.remove(key),
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conflicting_names_are_rejected_and_the_rest_accepted() {
        let mut taken = NamesInUse::default();
        taken.add(&json!({"plural": "foos", "singular": "foo", "shortNames": ["fo"], "kind": "Foo", "listKind": "FooList"}));
        let wanted = json!({"plural": "bars", "singular": "bar", "shortNames": ["b", "fo"], "kind": "Foo", "listKind": "BarList"});
        let (names, condition) = accept(&wanted, &json!({"plural": "", "kind": ""}), &taken);
        assert_eq!(
            names,
            json!({"plural": "bars", "singular": "bar", "kind": "", "listKind": "BarList"})
        );
        assert_eq!(
            (condition.reason, &*condition.message),
            ("KindConflict", "\"Foo\" is already in use")
        );
        let (names, condition) = accept(&wanted, &json!({}), &NamesInUse::default());
        assert_eq!((names, condition.status), (wanted, "True"));
    }
}
