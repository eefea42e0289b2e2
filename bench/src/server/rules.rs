//! What validation rules of CRDs cost: creates of the same objects with and without rules, and the creation of a CRD with
//! many rules.

use std::time::{Duration, Instant};

use anyhow::Context;
use http::Request;
use serde_json::{Map, Value, json};

use windlass_bench::report::{Report, Unit};

use super::{contenders::Contender, loads::Load};

const GROUP: &str = "bench.example.com";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The fields of an object of 5 KB, besides two numbers.
const FIELDS: usize = 120;

/// The objects that each measurement creates.
const OBJECTS: usize = 2_000;

/// The kinds that are compared: their plural, how often a create is measured with them, and their rules.
fn kinds() -> [(&'static str, &'static str, Vec<Value>); 3] {
    let many = (0..100).map(|index| json!({"rule": format!("self.field{index}.size() <= 64")}));
    [
        ("plains", "no rules", Vec::new()),
        (
            "singles",
            "one rule",
            vec![json!({"rule": "self.replicas <= self.max"})],
        ),
        ("hundreds", "100 rules", many.collect()),
    ]
}

/// Measures creates in dry runs, which do not reach the disk, and reports the server's CPU time of each and what the rules
/// add to it.
pub(super) async fn measure(
    rounds: usize,
    contenders: &[Contender],
    report: &mut Report,
) -> anyhow::Result<()> {
    for contender in contenders {
        let load = contender.load();
        for (plural, _, rules) in kinds() {
            load.define(plural, &rules).await?;
            load.wait_until_served(plural).await?;
        }
    }
    for round in 0..rounds {
        for contender in contenders {
            let load = contender.load();
            let many: Vec<_> = (0..200)
                .map(|index| json!({"rule": format!("self.field{} != 'x{index}'", index % FIELDS)}))
                .collect();
            let took = load.define(&format!("many{round}"), &many).await?;
            report.add(
                "rules: creation of a CRD with 200 rules",
                contender.name,
                Unit::Millis,
                took.as_secs_f64() * 1e3,
            );
            let mut without = None;
            for (plural, title, _) in kinds() {
                let before = contender.cpu_micros();
                let throughput = load.create_custom(plural).await?;
                report.add(
                    &format!("rules: creates of 5 KB with {title}"),
                    contender.name,
                    Unit::PerSecond,
                    throughput,
                );
                let Some((now, before)) = contender.cpu_micros().zip(before) else {
                    continue;
                };
                #[expect(clippy::cast_precision_loss, reason = "far below the 52 bits of a float")]
                let each = (now - before) / OBJECTS as f64;
                let case = format!("rules: creates of 5 KB with {title}: CPU each");
                report.add(&case, contender.name, Unit::Micros, each);
                let base = *without.get_or_insert(each);
                if title != "no rules" {
                    let case = format!("rules: CPU that {title} add to a create of 5 KB");
                    report.add(&case, contender.name, Unit::Micros, each - base);
                }
            }
        }
    }
    Ok(())
}

impl Load {
    /// Creates a CRD, and returns how long that took.
    async fn define(&self, plural: &str, rules: &[Value]) -> anyhow::Result<Duration> {
        let mut properties: Map<String, Value> = (0..FIELDS)
            .map(|index| {
                (
                    format!("field{index}"),
                    json!({"type": "string", "maxLength": 64}),
                )
            })
            .collect();
        properties.insert("replicas".to_owned(), json!({"type": "integer"}));
        properties.insert("max".to_owned(), json!({"type": "integer"}));
        let kind = format!("Kind{plural}");
        let spec = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{GROUP}")},
            "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": plural, "kind": kind}, "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }]},
        });
        let started = Instant::now();
        self.post(DEFINITIONS, &definition).await?;
        Ok(started.elapsed())
    }

    async fn wait_until_served(&self, plural: &str) -> anyhow::Result<()> {
        const ATTEMPTS: usize = 100;
        for _ in 0..ATTEMPTS {
            if self.text(&collection(plural)).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.text(&collection(plural))
            .await
            .map(|_| ())
            .context("the kind is not served")
    }

    async fn create_custom(&self, plural: &str) -> anyhow::Result<f64> {
        let path = format!("{}?dryRun=All", collection(plural));
        let mut spec: Map<String, Value> = (0..FIELDS)
            .map(|index| (format!("field{index}"), json!("some text of the object")))
            .collect();
        spec.insert("replicas".to_owned(), json!(3));
        spec.insert("max".to_owned(), json!(5));
        let request = |index| {
            let object = json!({
                "apiVersion": format!("{GROUP}/v1"),
                "kind": format!("Kind{plural}"),
                "metadata": {"name": format!("object-{index}")},
                "spec": spec,
            });
            Request::post(&path)
                .header("content-type", "application/json")
                .body(object.to_string().into_bytes())
        };
        let requests = (0..OBJECTS).map(request).collect::<Result<_, _>>()?;
        Ok(self.rate(requests, 16).await?.per_second)
    }
}

fn collection(plural: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/small/{plural}")
}
