use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> SinkSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn each_kind_parses_with_location_name_and_defaults() {
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
fn options_override_defaults() {
    let spec = parsed("file:/a,name=audit,rate=30/m,queue=5,retries=2,keep=1,rotate=10MiB");
    assert_eq!(spec.name, "audit");
    assert_eq!((spec.limits.queue.get(), spec.limits.retries), (5, Some(2)));
    let rate = spec.limits.rate.expect("a rate");
    assert_eq!((rate.notices, rate.period), (30, Duration::from_mins(1)));
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
fn invalid_sink_is_rejected_with_expected_form() {
    let cases = [
        (
            "",
            "unknown sink ``: use `stdout`, `stdout:json`, `file:PATH` or `webhook:URL`",
        ),
        (
            "slack",
            "unknown sink `slack`: use `stdout`, `stdout:json`, `file:PATH` or `webhook:URL`",
        ),
        (
            "stdout:xml",
            "unknown sink `stdout:xml`: use `stdout`, `stdout:json`, `file:PATH` or `webhook:URL`",
        ),
        (
            "file:",
            "`file:` needs a path, as in `file:/var/log/podwatch.jsonl`",
        ),
        (
            "webhook:",
            "`webhook:` needs a URL, as in `webhook:https://example.com/hook`",
        ),
        (
            "webhook:ftp://h/",
            "`webhook:` needs a URL that starts with http:// or https://, as in `webhook:https://example.com/hook`",
        ),
        (
            "webhook:example.com/s3cret",
            "`webhook:` needs a URL, as in `webhook:https://example.com/hook`",
        ),
        (
            "webhook:http://me:s3cret@h/",
            "`webhook:` needs a URL without user information (pass a token with `token-file=`), as in `webhook:https://example.com/hook`",
        ),
        (
            "webhook:http://h/,token-file=/s3cret",
            "`token-file` would be sent unencrypted: use an https:// URL, or add `insecure-token=allow`",
        ),
        (
            "webhook:http://127.0.0.1:80/,token-file=/s3cret",
            "`token-file` would be sent unencrypted: use an https:// URL, or add `insecure-token=allow`",
        ),
        (
            "webhook:http://h/,insecure-token=yes,token-file=/t",
            "invalid option `insecure-token=yes`: expected `allow`",
        ),
        (
            "stdout,rotate=1MB",
            "unknown option `rotate` of `stdout`: use `name`, `rate`, `queue`, `retries` (write a comma in a path or URL as `,,`)",
        ),
        (
            "file:a,b",
            "unknown option `b` of `file`: use `name`, `rate`, `queue`, `retries`, `rotate`, `keep` (write a comma in a path or URL as `,,`)",
        ),
        (
            "stdout,rate=0/s",
            "invalid option `rate=0/s`: expected a positive number per second or minute, as in `10/s` or `30/m`",
        ),
        (
            "stdout,queue=0",
            "invalid option `queue=0`: expected a positive number",
        ),
        (
            "webhook:http://h,timeout=5",
            "invalid option `timeout=5`: expected a duration, as in `500ms`, `10s` or `2m`",
        ),
        (
            "file:a,rotate=18446744073709551615GB",
            "invalid option `rotate=18446744073709551615GB`: expected a size, as in `100MB` or `1GiB`",
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
    fn any_text_parses_or_fails_without_panic(text in "(stdout|file|webhook)?:?.{0,40}(,[a-z-]{0,8}=.{0,8}){0,3}") {
        let _ = text.parse::<SinkSpec>();
    }

    #[test]
    fn path_with_escaped_commas_round_trips(path in "[a-z,/]{1,20}") {
        let spec = parsed(&format!("file:{}", path.replace(',', ",,")));
        let Address::File(found, _) = spec.address else { panic!("a file") };
        prop_assert_eq!(found, PathBuf::from(path));
    }
}
