//! Strategic merge patches of a Deployment; every result and message was recorded from a real 1.36 server.

use serde_json::json;

use super::*;
use crate::registry::Registry;

fn state() -> Value {
    json!({
        "metadata": {"name": "d", "finalizers": ["a.io/x", "a.io/y"], "labels": {"l": "1"}},
        "spec": {"replicas": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}, "template": {"spec": {
            "containers": [
                {"name": "c1", "image": "i1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                    "ports": [{"containerPort": 80}]},
                {"name": "c2", "image": "i2"},
                {"name": "c3", "image": "i3"},
            ],
            "volumes": [{"name": "v1", "emptyDir": {}}],
        }}},
    })
}

fn patched(patch: &Value) -> Result<Value, Status> {
    let catalogue = Registry::new().catalogue();
    let deployments = catalogue.find("apps", "v1", "deployments").expect("built in");
    let schema = deployments.schema.as_ref().map(crate::schema::Schema::view);
    let mut value = state();
    let (patch, _) = PatchKind::Strategic.decode(patch.to_string().as_bytes())?;
    patch.apply(schema, &mut value).map(|()| value)
}

fn pod(spec: &Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().map_or(&[][..], Vec::as_slice);
    items
        .iter()
        .map(|item| item["name"].as_str().or(item.as_str()).unwrap_or("?"))
        .collect()
}

#[test]
fn lists_of_maps_merge_by_key_and_keep_their_order() {
    for (spec, order) in [
        (
            json!({"containers": [{"name": "c2", "image": "new"}]}),
            vec!["c1", "c2", "c3"],
        ),
        // The patch's items have its order; other items stay before those that they preceded.
        (
            json!({"containers": [{"name": "n"}, {"name": "c3"}]}),
            vec!["n", "c1", "c2", "c3"],
        ),
        (
            json!({"containers": [{"name": "c2", "$patch": "delete"}]}),
            vec!["c1", "c3"],
        ),
        (
            json!({"containers": [{"$patch": "replace"}, {"name": "only"}]}),
            vec!["only"],
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "c3"}, {"name": "c1"}, {"name": "c2"}]}),
            vec!["c3", "c1", "c2"],
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "c3"}, {"name": "n"}, {"name": "c1"}], "containers": [{"name": "n"}]}),
            vec!["c2", "c3", "n", "c1"],
        ),
    ] {
        let value = patched(&pod(&spec)).expect("applies");
        assert_eq!(
            names(&value["spec"]["template"]["spec"]["containers"]),
            order,
            "{spec}"
        );
    }
}

#[test]
fn sets_of_strings_merge_and_delete() {
    for (metadata, finalizers) in [
        (
            json!({"finalizers": ["a.io/z"]}),
            vec!["a.io/z", "a.io/x", "a.io/y"],
        ),
        (
            json!({"finalizers": ["a.io/z", "a.io/x"]}),
            vec!["a.io/z", "a.io/x", "a.io/y"],
        ),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["a.io/x"]}),
            vec!["a.io/y"],
        ),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["a.io/x"], "finalizers": ["a.io/w"]}),
            vec!["a.io/w", "a.io/y"],
        ),
        (
            json!({"$deleteFromPrimitiveList/finalizers": "a.io/x"}),
            vec!["a.io/x", "a.io/y"],
        ),
        (
            json!({"$deleteFromPrimitiveList/nope": ["a.io/x"]}),
            vec!["a.io/x", "a.io/y"],
        ),
        (
            json!({"$setElementOrder/finalizers": ["a.io/y", "a.io/x"]}),
            vec!["a.io/y", "a.io/x"],
        ),
        (
            json!({"$setElementOrder/finalizers": ["a.io/y", "a.io/z"], "finalizers": ["a.io/z"]}),
            vec!["a.io/x", "a.io/y", "a.io/z"],
        ),
    ] {
        let value = patched(&json!({"metadata": metadata})).expect("applies");
        assert_eq!(names(&value["metadata"]["finalizers"]), finalizers, "{metadata}");
    }
}

#[test]
fn maps_merge_or_follow_directives() {
    for (patch, path, result) in [
        (
            json!({"metadata": {"labels": {"l": null, "m": "1"}}}),
            "/metadata/labels",
            json!({"m": "1"}),
        ),
        (
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
            "/metadata/labels",
            json!({}),
        ),
        (
            json!({"metadata": {"labels": {"$patch": "replace", "x": "y"}}}),
            "/metadata/labels",
            json!({"x": "y"}),
        ),
        (
            json!({"metadata": {"annotations": {"l": null, "m": "1"}}}),
            "/metadata/annotations",
            json!({"m": "1"}),
        ),
        (
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            "/spec/strategy",
            json!({"type": "Recreate"}),
        ),
        (
            pod(
                &json!({"volumes": [{"name": "v1", "$retainKeys": ["name", "configMap"], "configMap": {"name": "x"}}]}),
            ),
            "/spec/template/spec/volumes",
            json!([{"name": "v1", "configMap": {"name": "x"}}]),
        ),
        (
            pod(
                &json!({"containers": [{"name": "c1", "env": [{"name": "B", "$patch": "delete"}, {"name": "C", "value": "3"}]}]}),
            ),
            "/spec/template/spec/containers/0/env",
            json!([{"name": "C", "value": "3"}, {"name": "A", "value": "1"}]),
        ),
        // A list without a merge strategy is replaced.
        (
            pod(&json!({"tolerations": [{"key": "a"}]})),
            "/spec/template/spec/tolerations",
            json!([{"key": "a"}]),
        ),
    ] {
        let value = patched(&patch).expect("applies");
        assert_eq!(value.pointer(path), Some(&result), "{patch}");
    }
    // A directive for an absent field changes nothing.
    let value =
        patched(&json!({"metadata": {"annotations": {"$patch": "delete", "m": "1"}}})).expect("applies");
    assert_eq!(value, state());
}

#[test]
fn malformed_directives_are_rejected_like_the_real_server() {
    for (patch, code, message) in [
        (
            pod(&json!({"containers": [{"name": "c2", "$patch": "merge"}]})),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            pod(&json!({"containers": [{"name": "c2", "$patch": "bogus"}]})),
            500,
            "unknown patch type: bogus in map: map[$patch:bogus name:c2]",
        ),
        (
            pod(&json!({"containers": [{"image": "nokey"}]})),
            500,
            "map: map[image:nokey] does not contain declared merge key: name",
        ),
        (
            pod(&json!({"$setElementOrder/containers": "x"})),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            pod(&json!({"$setElementOrder/containers": ["c1"]})),
            500,
            "value for key 0 is not a map",
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["a.io/y"], "finalizers": ["a.io/z"]}}),
            500,
            "The order in patch list:\n[a.io/z]\n doesn't match $setElementOrder list:\n[a.io/y]\n",
        ),
        (
            json!({"metadata": {"$setElementOrder/nope": ["a.io/y"]}}),
            500,
            "unable to find api field in struct ObjectMeta for the json field \"nope\"",
        ),
        (
            json!({"metadata": {"$setElementOrder": ["a.io/y"]}}),
            400,
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList": ["a.io/x"]}}),
            400,
            "invalid patch format of primitive list",
        ),
        (
            json!({"metadata": {"labels": {"$patch": 1, "x": "y"}}}),
            500,
            "unknown patch type: %!s(int64=1) in map: map[$patch:1 x:y]",
        ),
        (
            json!({"metadata": {"finalizers": [1]}}),
            500,
            "list element types are not identical: [[a.io/x a.io/y] [1]]",
        ),
        (
            pod(&json!({"volumes": [{"name": "v1", "$retainKeys": ["name"], "configMap": {"name": "x"}}]})),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!([]),
            400,
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
    ] {
        let status = patched(&patch).expect_err("refused").to_value();
        assert_eq!(
            (&status["code"], &status["message"]),
            (&json!(code), &json!(message)),
            "{patch}"
        );
    }
}

mod property_tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates trees without nulls, which a patch cannot set.
    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..4i64).prop_map(Value::from),
            "[a-c]".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-d]", tree(), 0..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }

    /// The merge patch from one state to another.
    fn difference(from: &Value, to: &Value) -> Value {
        let (Value::Object(from), Value::Object(to)) = (from, to) else {
            return to.clone();
        };
        let mut patch = Map::new();
        for key in from.keys().filter(|key| !to.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
        for (key, value) in to.iter().filter(|(key, value)| from.get(*key) != Some(value)) {
            let change = from
                .get(key)
                .map_or_else(|| value.clone(), |old| difference(old, value));
            patch.insert(key.clone(), change);
        }
        patch.into()
    }

    fn containers() -> impl Strategy<Value = Value> {
        let container = ("[a-e]", prop::option::of("[x-z]")).prop_map(|(name, image)| match image {
            Some(image) => json!({"name": name, "image": image}),
            None => json!({"name": name, "$patch": "delete"}),
        });
        let unique = prop::collection::vec(container, 0..5).prop_map(|mut list| {
            let mut seen = Vec::new();
            list.retain(|item| {
                let new = !seen.contains(&item["name"]);
                seen.push(item["name"].clone());
                new
            });
            list
        });
        let finalizers = prop::collection::vec("[a-d]\\.io/f", 0..4);
        (unique, finalizers).prop_map(|(containers, finalizers)| {
            json!({"metadata": {"finalizers": finalizers}, "spec": {"template": {"spec": {"containers": containers}}}})
        })
    }

    fn apply(patch: &Value, mut value: Value, kind: PatchKind) -> Result<Value, Status> {
        let catalogue = Registry::new().catalogue();
        let deployments = catalogue.find("apps", "v1", "deployments").expect("built in");
        let schema = deployments.schema.as_ref().map(crate::schema::Schema::view);
        let (patch, _) = kind.decode(patch.to_string().as_bytes())?;
        patch.apply(schema, &mut value).map(|()| value)
    }

    proptest! {
        #[test]
        fn empty_patch_changes_nothing(value in object()) {
            for kind in [PatchKind::Merge, PatchKind::Strategic] {
                prop_assert_eq!(apply(&json!({}), value.clone(), kind).unwrap(), value.clone());
            }
            prop_assert_eq!(apply(&json!([]), value.clone(), PatchKind::Json).unwrap(), value);
        }

        #[test]
        fn merge_patch_of_the_difference_gives_the_target(from in object(), to in object()) {
            let patch = difference(&from, &to);
            prop_assert_eq!(apply(&patch, from, PatchKind::Merge).unwrap(), to);
        }

        #[test]
        fn merge_patch_is_idempotent(value in object(), patch in object()) {
            let once = apply(&patch, value, PatchKind::Merge).unwrap();
            prop_assert_eq!(apply(&patch, once.clone(), PatchKind::Merge).unwrap(), once);
        }

        #[test]
        fn strategic_patch_is_idempotent(patch in containers()) {
            let once = apply(&patch, state(), PatchKind::Strategic).unwrap();
            prop_assert_eq!(apply(&patch, once.clone(), PatchKind::Strategic).unwrap(), once);
        }

        #[test]
        fn strategic_patch_sets_its_items_and_keeps_the_rest(patch in containers()) {
            let value = apply(&patch, state(), PatchKind::Strategic).unwrap();
            let list = |value: &Value| value["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
            let (before, wanted, after) = (list(&state()), list(&patch), list(&value));
            let find = |list: &[Value], name: &Value| list.iter().find(|item| item["name"] == *name).cloned();
            for item in &wanted {
                match find(&after, &item["name"]) {
                    Some(found) => prop_assert_eq!(&found["image"], &item["image"]),
                    None => prop_assert_eq!(&item["$patch"], "delete"),
                }
            }
            for item in before.iter().filter(|item| find(&wanted, &item["name"]).is_none()) {
                prop_assert_eq!(find(&after, &item["name"]), Some(item.clone()));
            }
        }

        #[test]
        fn no_patch_panics(patch in tree(), value in object()) {
            for kind in [PatchKind::Merge, PatchKind::Strategic, PatchKind::Json] {
                let _ = apply(&patch, value.clone(), kind);
                let _ = apply(&patch, state(), kind);
            }
        }
    }
}
