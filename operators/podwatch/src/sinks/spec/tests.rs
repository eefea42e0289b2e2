//! What a text names, and what is wrong with one that names nothing.

use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> SinkSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn each_kind_has_its_place_name_and_defaults() {
    let cases = [
        ("stdout", "stdout", "Stdout(Text)"),
        ("stdout:text", "stdout", "Stdout(Text)"),
        ("stdout:diff", "stdout", "Stdout(Diff)"),
        ("stdout:json", "stdout", "Stdout(Json)"),
        ("file:/a/b", "file:/a/b", "File(\"/a/b\", None)"),
        ("file:a,,b", "file:a,b", "File(\"a,b\", None)"),
        (
            "webhook:https://h.example:8443/secret/path?t=1",
            "webhook:h.example:8443",
            "Webhook(Some(\"h.example\"), ..)",
        ),
    ];
    for (text, name, address) in cases {
        let spec = parsed(text);
        assert_eq!(
            (&*spec.name, &*format!("{:?}", spec.address)),
            (name, address),
            "{text}"
        );
        assert!(!format!("{spec:?}").contains("secret"), "{spec:?}");
        assert_eq!(spec.limits.queue.get(), 1000, "{text}");
        assert_eq!(spec.limits.rate.is_some(), name.starts_with("webhook"), "{text}");
        assert_eq!(spec.limits.retries, None, "{text}");
    }
}

#[test]
fn options_say_more() {
    let spec = parsed("file:/a,name=audit,rate=30/m,queue=5,retries=2,keep=1,rotate=10MiB");
    assert_eq!(spec.name, "audit");
    assert_eq!((spec.limits.queue.get(), spec.limits.retries), (5, Some(2)));
    let rate = spec.limits.rate.expect("a rate");
    assert_eq!((rate.notices, rate.every), (30, Duration::from_mins(1)));
    let Address::File(_, Some(rotation)) = spec.address else {
        panic!("{:?}", spec.address)
    };
    assert_eq!((rotation.size, rotation.keep), (10 << 20, 1));
    let spec =
        parsed("webhook:http://h/x,timeout=500ms,source=/here,token-file=/t,insecure-token=allow,ca=/c");
    let Address::Webhook(url, settings) = spec.address else {
        panic!("{:?}", spec.address)
    };
    assert_eq!(
        (url.to_string(), settings.timeout),
        ("http://h/x".to_owned(), Duration::from_millis(500))
    );
    assert_eq!(
        (&*settings.source, settings.token_file, settings.ca),
        ("/here", Some("/t".into()), Some("/c".into()))
    );
    assert!(settings.insecure_token);
    let Address::Webhook(_, settings) = parsed("webhook:https://h/x,token-file=/t").address else {
        panic!("a webhook")
    };
    assert!(!settings.insecure_token);
}

#[test]
fn what_is_wrong_is_told_with_what_would_be_right() {
    let cases = [
        (
            "",
            "no sink is called ``: use `stdout`, `stdout:json`, `file:PATH` or `webhook:URL`",
        ),
        (
            "slack",
            "no sink is called `slack`: use `stdout`, `stdout:json`, `file:PATH` or `webhook:URL`",
        ),
        (
            "stdout:xml",
            "no sink is called `stdout:xml`: use `stdout`, `stdout:json`, `file:PATH` or `webhook:URL`",
        ),
        (
            "file:",
            "`file:` needs a path, as in `file:/var/log/podwatch.jsonl`",
        ),
        (
            "webhook:",
            "`webhook:` needs an address, as in `webhook:https://example.com/hook`",
        ),
        (
            "webhook:ftp://h/",
            "`webhook:` needs an address that begins with http:// or https://, as in `webhook:https://example.com/hook`",
        ),
        (
            "webhook:example.com/s3cret",
            "`webhook:` needs an address, as in `webhook:https://example.com/hook`",
        ),
        (
            "webhook:http://me:s3cret@h/",
            "`webhook:` needs an address without a user (give a token with `token-file=`), as in `webhook:https://example.com/hook`",
        ),
        (
            "webhook:http://h/,token-file=/s3cret",
            "`token-file` would be sent over plain HTTP, where everyone on the way can read it: use an address with https://, or add `insecure-token=allow`",
        ),
        (
            "webhook:http://127.0.0.1:80/,token-file=/s3cret",
            "`token-file` would be sent over plain HTTP, where everyone on the way can read it: use an address with https://, or add `insecure-token=allow`",
        ),
        (
            "webhook:http://h/,insecure-token=yes,token-file=/t",
            "`insecure-token=yes` is not `allow`",
        ),
        (
            "stdout,rotate=1MB",
            "`stdout` has no option `rotate`: it has `name`, `rate`, `queue`, `retries` (a comma in a path or address is written as `,,`)",
        ),
        (
            "file:a,b",
            "`file` has no option `b`: it has `name`, `rate`, `queue`, `retries`, `rotate`, `keep` (a comma in a path or address is written as `,,`)",
        ),
        (
            "stdout,rate=0/s",
            "`rate=0/s` is not a number above 0 in a second or minute, as in `10/s` or `30/m`",
        ),
        ("stdout,queue=0", "`queue=0` is not a number from 1 on"),
        (
            "webhook:http://h,timeout=5",
            "`timeout=5` is not a time, as in `500ms`, `10s` or `2m`",
        ),
        (
            "file:a,rotate=18446744073709551615GB",
            "`rotate=18446744073709551615GB` is not a size, as in `100MB` or `1GiB`",
        ),
    ];
    for (text, expected) in cases {
        let error = text.parse::<SinkSpec>().expect_err(text).to_string();
        assert_eq!(error, expected, "{text}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_sink_or_an_error(text in "(stdout|file|webhook)?:?.{0,40}(,[a-z-]{0,8}=.{0,8}){0,3}") {
        let _ = text.parse::<SinkSpec>();
    }

    #[test]
    fn a_path_with_commas_comes_back(path in "[a-z,/]{1,20}") {
        let spec = parsed(&format!("file:{}", path.replace(',', ",,")));
        let Address::File(found, _) = spec.address else { panic!("a file") };
        prop_assert_eq!(found, PathBuf::from(path));
    }
}
