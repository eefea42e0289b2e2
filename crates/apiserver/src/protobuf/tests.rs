//! Whole bodies, encoded by hand.

use proptest::prelude::*;
use serde_json::json;

use super::*;

mod requests;

/// Field `number` as bytes: a string, or a message of such fields.
fn field(number: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let (tag, length) = (varint(number << 3 | 2), varint(content.len() as u64));
    [&tag, &length, content].concat()
}

/// Field `number` as a varint.
pub(super) fn number(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).expect("seven bits");
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn body(api_version: &str, kind: &str, raw: &[Vec<u8>]) -> Vec<u8> {
    let kind = [field(1, api_version), field(2, kind)].concat();
    [MAGIC.to_vec(), field(1, kind), field(2, raw.concat())].concat()
}

fn named(name: &str) -> Vec<u8> {
    field(1, field(1, name))
}

fn read(api_version: &str, kind: &str, raw: &[Vec<u8>]) -> Value {
    decode(&body(api_version, kind, raw), "", "").expect("well formed")
}

fn fault(api_version: &str, kind: &str, raw: &[Vec<u8>]) -> Fault {
    match decode(&body(api_version, kind, raw), "", "") {
        Err(Error::Object { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn empty_object_has_the_zero_values_go_writes() {
    assert_eq!(
        read("apps/v1", "Deployment", &[]),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
            "spec": {
                "selector": null, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": null}},
            },
            "status": {},
        })
    );
    assert_eq!(
        read("v1", "ConfigMap", &[]),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    );
}

#[test]
fn zero_is_kept_behind_a_pointer_only() {
    let spec = [number(1, 0), number(5, 0), number(7, 0), number(9, 0)].concat();
    let spec = &read("apps/v1", "Deployment", &[field(2, spec)])["spec"];
    assert_eq!(
        (&spec["replicas"], &spec["progressDeadlineSeconds"]),
        (&json!(0), &json!(0))
    );
    assert_eq!((spec.get("minReadySeconds"), spec.get("paused")), (None, None));
    let status = [number(4, 0), number(9, 0)].concat();
    let job = read("batch/v1", "Job", &[field(3, status)]);
    assert_eq!(job["status"], json!({"ready": 0}));
}

#[test]
fn inlined_struct_is_flattened() {
    let source = field(19, [field(1, field(1, "settings"))].concat());
    let volume = [field(1, "v"), field(2, source)].concat();
    let pod = read("v1", "Pod", &[field(2, field(1, volume))]);
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "v", "configMap": {"name": "settings"}}])
    );
}

#[test]
fn maps_bytes_and_quantities_become_json() {
    let entry = |key: &str, value: &[u8]| [field(1, key), field(2, value)].concat();
    let secret = [
        field(2, entry("k", &[0, 255])),
        field(2, field(1, "none")),
        field(4, entry("s", "text".as_bytes())),
        field(3, "Opaque"),
    ];
    let secret = read("v1", "Secret", &secret);
    assert_eq!(secret["data"], json!({"k": "AP8=", "none": ""}));
    assert_eq!(secret["stringData"], json!({"s": "text"}));
    let quota = field(1, entry("cpu", &field(1, "500m")));
    let quota = read("v1", "ResourceQuota", &[field(2, quota)]);
    assert_eq!(quota["spec"], json!({"hard": {"cpu": "500m"}}));
}

#[test]
fn times_and_embedded_json_are_decoded() {
    let meta = [field(1, "r"), field(8, number(1, 1_700_000_000)), field(9, [])].concat();
    let revision = [
        field(1, meta),
        field(2, field(1, r#"{"spec":{"$patch":"x"}}"#)),
        number(3, 0),
    ];
    assert_eq!(
        read("apps/v1", "ControllerRevision", &revision),
        json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {"name": "r", "creationTimestamp": "2023-11-14T22:13:20Z", "deletionTimestamp": null},
            "data": {"spec": {"$patch": "x"}}, "revision": 0,
        })
    );
    let spec = [
        field(1, "me"),
        number(2, 15),
        field(4, [number(1, 1), number(2, 5000)].concat()),
    ]
    .concat();
    assert_eq!(
        read("coordination.k8s.io/v1", "Lease", &[field(2, spec)])["spec"],
        json!({"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "1970-01-01T00:00:01.000005Z"})
    );
}

#[test]
fn schema_alternatives_decode_to_the_one_present() {
    let (items, all_of, properties, additional, dependencies) = (24, 25, 29, 30, 32);
    let text = field(5, "string");
    let schema = json!({"type": "string"});
    let entry = |value: Vec<u8>| [field(1, "a"), field(2, value)].concat();
    for (number, bytes, expected) in [
        (items, field(1, &text), json!({"items": schema})),
        (
            items,
            [field(2, &text), field(2, [])].concat(),
            json!({"items": [schema, {}]}),
        ),
        (items, vec![], json!({"items": null})),
        (all_of, text.clone(), json!({"allOf": [schema]})),
        (
            properties,
            entry(text.clone()),
            json!({"properties": {"a": schema}}),
        ),
        (additional, vec![], json!({"additionalProperties": false})),
        (additional, number(1, 1), json!({"additionalProperties": true})),
        (
            additional,
            [number(1, 1), field(2, &text)].concat(),
            json!({"additionalProperties": schema}),
        ),
        (
            dependencies,
            entry(field(1, &text)),
            json!({"dependencies": {"a": schema}}),
        ),
        (
            dependencies,
            entry(field(2, "b")),
            json!({"dependencies": {"a": ["b"]}}),
        ),
    ] {
        let crd = definition(field(number, bytes));
        let crd = decode(&crd, "", "").expect("well formed");
        assert_eq!(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], expected);
    }
}

/// A CRD with this schema.
fn definition(schema: Vec<u8>) -> Vec<u8> {
    body(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &[field(2, field(7, field(4, field(1, schema))))],
    )
}

#[test]
fn list_message_decodes_to_a_list() {
    let extra = |items: &[Vec<u8>]| [field(1, "scopes"), field(2, items.concat())].concat();
    let review = |items: &[Vec<u8>]| {
        let spec = field(5, extra(items));
        read(
            "authorization.k8s.io/v1",
            "SubjectAccessReview",
            &[field(2, spec)],
        )["spec"]["extra"]
            .clone()
    };
    assert_eq!(
        review(&[field(1, "a"), field(1, "b")]),
        json!({"scopes": ["a", "b"]})
    );
    assert_eq!(review(&[]), json!({"scopes": null}));
}

#[test]
fn packed_numbers_are_decoded() {
    let groups = |list: Vec<u8>| {
        let context = field(14, list);
        read("v1", "Pod", &[field(2, context)])["spec"]["securityContext"]["supplementalGroups"].clone()
    };
    assert_eq!(groups(field(4, [1, 0x80, 1])), json!([1, 128]));
    assert_eq!(groups([number(4, 1), number(4, 128)].concat()), json!([1, 128]));
    assert_eq!(groups(field(4, [])), Value::Null);
}

#[test]
fn message_parts_are_merged_and_the_last_scalar_wins() {
    let parts = [
        named("a"),
        named("b"),
        field(1, field(3, "ns")),
        field(99, "later"),
    ];
    assert_eq!(
        read("v1", "ConfigMap", &parts)["metadata"],
        json!({"name": "b", "namespace": "ns"})
    );
}

#[test]
fn invalid_utf_8_is_replaced_like_in_go() {
    let object = read("v1", "ConfigMap", &[field(1, field(1, [0xff, b'a']))]);
    assert_eq!(object["metadata"]["name"], "\u{fffd}a");
}

#[test]
fn body_without_type_has_the_expected_kind() {
    let bare = [MAGIC.to_vec(), field(2, named("a"))].concat();
    let object = decode(&bare, "v1", "Secret").expect("well formed");
    assert_eq!(object["kind"], "Secret");
    assert!(matches!(
        decode(&bare, "", "Secret"),
        Err(Error::UnknownKind { .. })
    ));
}

#[test]
fn invalid_bodies_have_the_real_servers_messages() {
    let text = |body: &[u8]| decode(body, "v1", "ConfigMap").expect_err("broken").to_string();
    assert_eq!(text(b""), "empty data");
    assert_eq!(text(MAGIC), "empty body");
    assert_eq!(text(b"k8s\0\xff"), "unexpected EOF");
    assert_eq!(
        text(b"{}"),
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    );
    assert_eq!(
        text(&body("foo.io/v7", "ConfigMap", &[])),
        r#"no kind "ConfigMap" is registered for version "foo.io/v7" in scheme "pkg/runtime/scheme.go:111""#
    );
    assert_eq!(
        text(&body("v1", "ConfigMap", &[number(1, 1)])),
        "proto: wrong wireType = 0 for field metadata"
    );
    assert_eq!(fault("v1", "ConfigMap", &[vec![0x0a, 9]]), Fault::Eof);
    let data = field(2, field(1, "{"));
    assert!(matches!(
        fault("apps/v1", "ControllerRevision", &[data]),
        Fault::Json(_)
    ));
}

#[test]
fn nesting_is_limited_to_what_can_be_stored() {
    let nested = |levels: usize| {
        let schema = (0..levels).fold(Vec::new(), |schema, _| field(28, schema));
        decode(&definition(schema), "", "")
    };
    // Around the schema are the object, `spec`, `versions`, the version and `schema`.
    let deepest = nested(MAX_DEPTH - 6).expect("deep enough").to_string();
    serde_json::from_str::<Value>(&deepest).expect("can be read again");
    for levels in [MAX_DEPTH - 5, 100_000] {
        assert!(matches!(
            nested(levels),
            Err(Error::Object {
                fault: Fault::TooDeep,
                ..
            })
        ));
    }
}

#[test]
fn embedded_json_counts_towards_the_depth() {
    let revision = |levels: usize| {
        let text = "[".repeat(levels) + &"]".repeat(levels);
        decode(
            &body("apps/v1", "ControllerRevision", &[field(2, field(1, text))]),
            "",
            "",
        )
    };
    let deepest = revision(MAX_DEPTH - 2).expect("deep enough").to_string();
    serde_json::from_str::<Value>(&deepest).expect("can be read again");
    assert!(revision(MAX_DEPTH).is_err());
}

#[test]
fn small_body_cannot_expand_to_a_huge_tree() {
    let containers = field(2, []).repeat(MAX_VALUES);
    assert_eq!(fault("v1", "Pod", &[field(2, containers)]), Fault::TooManyValues);
    let numbers = vec![1; MAX_VALUES + 1];
    let context = field(14, field(4, numbers));
    assert_eq!(fault("v1", "Pod", &[field(2, context)]), Fault::TooManyValues);
}

fn pod() -> Vec<u8> {
    let resources = field(1, [field(1, "cpu"), field(2, field(1, "1"))].concat());
    let probe = field(
        1,
        field(
            2,
            [field(1, "/"), field(2, [number(1, 1), field(3, "http")].concat())].concat(),
        ),
    );
    let container = [
        field(1, "c"),
        field(2, "image"),
        field(8, resources),
        field(10, probe),
    ]
    .concat();
    let meta = [
        field(1, "p"),
        field(8, number(1, 9)),
        field(11, [field(1, "l"), field(2, "v")].concat()),
    ]
    .concat();
    body(
        "v1",
        "Pod",
        &[
            field(1, meta),
            field(2, [field(2, container), number(4, 0)].concat()),
        ],
    )
}

fn kinds() -> impl Strategy<Value = (String, String)> {
    let kinds: Vec<String> = Descriptors::built_in().kinds().map(str::to_owned).collect();
    proptest::sample::select(kinds).prop_map(|kind| {
        let (version, kind) = kind.rsplit_once('/').expect("has a version");
        (version.to_owned(), kind.to_owned())
    })
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), with_magic: bool) {
        let bytes = if with_magic { [MAGIC, &bytes].concat() } else { bytes };
        let _ = decode(&bytes, "v1", "Pod");
    }

    #[test]
    fn arbitrary_bytes_as_any_kind_do_not_panic(
        (api_version, kind) in kinds(),
        raw in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        if let Ok(object) = decode(&body(&api_version, &kind, &[raw]), "", "") {
            let again: Value = serde_json::from_str(&object.to_string()).expect("can be read again");
            prop_assert_eq!(again, object);
        }
    }

    #[test]
    fn arbitrary_fields_do_not_panic(
        (api_version, kind) in kinds(),
        numbers in proptest::collection::vec((1_u64..45, any::<bool>(), any::<u64>()), 0..40),
    ) {
        // Well-formed nested messages get deeper than random bytes.
        let raw = numbers.into_iter().fold(Vec::new(), |inner, (at, nests, value)| {
            if nests { field(at, inner) } else { [inner, number(at, value)].concat() }
        });
        let _ = decode(&body(&api_version, &kind, &[raw]), "", "");
    }

    #[test]
    fn damaged_object_does_not_panic(
        at in any::<prop::sample::Index>(), with: u8, cut in any::<prop::sample::Index>(), cuts: bool,
    ) {
        let mut bytes = pod();
        let place = at.index(bytes.len());
        bytes[place] = with;
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = decode(&bytes, "v1", "Pod");
    }
}
