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
        (
            "otlp:https://c.example/secret",
            "otlp:c.example",
            "Otlp(Some(\"c.example\"), ..)",
        ),
        ("events", "events", "Events"),
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
        let rate = spec.limits.rate.map(|rate| rate.notices);
        let (expected_rate, concurrency) = match name.split(':').next() {
            Some("webhook" | "otlp") => (Some(1000), 16),
            Some("events") => (Some(5), 4),
            Some("file") => (None, 64),
            _ => (None, 1),
        };
        assert_eq!(rate, expected_rate, "{text}");
        assert_eq!(spec.limits.retries, None, "{text}");
        assert_eq!(spec.limits.concurrency.get(), concurrency, "{text}");
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
    let spec = parsed(
        "webhook:http://h/x,concurrency=4,timeout=500ms,source=/here,token-file=/t,insecure-token=allow,ca=/c",
    );
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
    assert_eq!(spec.limits.concurrency.get(), 4);
    let Address::Webhook(_, settings) = parsed("webhook:https://h/x,token-file=/t").address else {
        panic!("a webhook")
    };
    assert!(!settings.insecure_token);
}

#[test]
fn template_is_a_name_or_a_file_and_slower_by_default() {
    for (text, source, notices) in [
        ("template=slack", TemplateSource::Slack, 1),
        ("template=teams,rate=4/s", TemplateSource::Teams, 4),
        (
            "rate=9/s,template=./slack",
            TemplateSource::File("./slack".into()),
            9,
        ),
    ] {
        let spec = parsed(&format!("webhook:https://h/x,{text}"));
        let Address::Webhook(_, settings) = spec.address else {
            panic!("a webhook")
        };
        assert_eq!(settings.template, Some(source));
        assert_eq!(spec.limits.rate.map(|rate| rate.notices), Some(notices), "{text}");
    }
}

#[test]
fn invalid_sink_is_rejected_with_expected_form() {
    let cases = [
        (
            "",
            "unknown sink ``: use `stdout`, `stdout:json`, `file:PATH`, `webhook:URL`, `otlp:URL` or `events`; for a chat, `webhook:URL,template=slack` or `template=teams`",
        ),
        (
            "slack",
            "unknown sink `slack`: use `stdout`, `stdout:json`, `file:PATH`, `webhook:URL`, `otlp:URL` or `events`; for a chat, `webhook:URL,template=slack` or `template=teams`",
        ),
        (
            "stdout:xml",
            "unknown sink `stdout:xml`: use `stdout`, `stdout:json`, `file:PATH`, `webhook:URL`, `otlp:URL` or `events`; for a chat, `webhook:URL,template=slack` or `template=teams`",
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
            "events:default",
            "unknown sink `events:default`: use `stdout`, `stdout:json`, `file:PATH`, `webhook:URL`, `otlp:URL` or `events`; for a chat, `webhook:URL,template=slack` or `template=teams`",
        ),
        (
            "otlp:collector:4318",
            "`otlp:` needs a URL that starts with http:// or https://, as in `otlp:http://collector:4318`",
        ),
        (
            "otlp:http://h/,template=slack",
            "unknown option `template` of `otlp`: use `name`, `rate`, `queue`, `retries`, `concurrency`, `timeout`, `source`, `token-file`, `insecure-token`, `ca` (write a comma in a path or URL as `,,`)",
        ),
        (
            "webhook:http://h/,template=",
            "invalid option `template=`: expected `slack`, `teams` or the path of a file",
        ),
        (
            "stdout,concurrency=2",
            "unknown option `concurrency` of `stdout`: use `name`, `rate`, `queue`, `retries` (write a comma in a path or URL as `,,`)",
        ),
        (
            "webhook:http://h,concurrency=257",
            "invalid option `concurrency=257`: expected a number from 1 to 256",
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

#[test]
fn token_is_refused_for_http_unless_allowed() {
    for place in [
        "webhook:http://h/",
        "webhook:http://127.0.0.1:80/",
        "otlp:http://collector:4318",
        "otlp:http://127.0.0.1:4318/v1/logs",
    ] {
        let text = format!("{place},token-file=/s3cret");
        let error = text.parse::<SinkSpec>().expect_err(place).to_string();
        assert_eq!(
            error,
            "`token-file` would be sent unencrypted: use an https:// URL, or add `insecure-token=allow`",
        );
        parsed(&format!("{text},insecure-token=allow"));
        parsed(&text.replace("http://", "https://"));
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
