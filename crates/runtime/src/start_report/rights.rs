//! Which rights are missing, by access reviews, and the rules that grant them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use tokio::time::timeout;

/// Upper bound of access reviews for one message, how many are sent at the same time, and how long all may take.
const MAX_REVIEWS: usize = 256;
const CONCURRENT_REVIEWS: usize = 4;
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// What a right is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    /// Empty for all namespaces, and for cluster-scoped kinds.
    pub(crate) namespace: String,
    /// Empty for the core group.
    pub(crate) group: String,
    /// The plural, with a subresource: `foos/status`.
    pub(crate) plural: String,
    /// Only the object of this name; empty for all.
    pub(crate) name: String,
}

/// The verbs of rights, by resource.
pub(crate) type RightsByResource = BTreeMap<Resource, BTreeSet<&'static str>>;

/// The rights that the server denies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) rights: RightsByResource,
    /// How many rights were not asked about, because there are too many.
    pub(super) unchecked: usize,
}

/// Asks the server about each right; `None` if it does not answer all reviews.
pub(super) async fn review(client: &Client, required: &RightsByResource) -> Option<Denied> {
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let all = required
        .iter()
        .flat_map(|(resource, verbs)| verbs.iter().map(move |verb| (resource, *verb)));
    let total: usize = required.values().map(BTreeSet::len).sum();
    let asked: Vec<_> = all
        .take(MAX_REVIEWS)
        .map(|(resource, verb)| is_allowed(reviews.clone(), resource.clone(), verb))
        .collect();
    let mut denied = Denied {
        unchecked: total - asked.len(),
        ..Denied::default()
    };
    let answering = async {
        let mut answers = stream::iter(asked).buffer_unordered(CONCURRENT_REVIEWS);
        while let Some(answer) = answers.next().await {
            let (resource, verb, allowed) = answer?;
            if !allowed {
                denied.rights.entry(resource).or_default().insert(verb);
            }
        }
        Some(())
    };
    timeout(REVIEW_TIMEOUT, answering).await.ok()??;
    Some(denied)
}

/// Asks the server about one right; `None` if it does not answer.
async fn is_allowed(
    reviews: Api<SelfSubjectAccessReview>,
    resource: Resource,
    verb: &'static str,
) -> Option<(Resource, &'static str, bool)> {
    let (plural, subresource) = match resource.plural.split_once('/') {
        Some((plural, subresource)) => (plural, Some(subresource.to_owned())),
        None => (&*resource.plural, None),
    };
    // A right to create cannot be limited to a name.
    let name = (verb != "create" && !resource.name.is_empty()).then(|| resource.name.clone());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(resource.namespace.clone()),
                group: Some(resource.group.clone()),
                resource: Some(plural.to_owned()),
                subresource,
                name,
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = reviews.create(&PostParams::default(), &review).await.ok()?;
    Some((resource, verb, answer.status?.allowed))
}

/// Rules in YAML's flow style, by the kind of role that they belong to.
pub(super) fn rules(denied: &Denied) -> String {
    // Resources of one group with the same verbs are one rule.
    let mut joined = BTreeMap::<_, BTreeSet<&str>>::new();
    for (resource, verbs) in &denied.rights {
        joined
            .entry((resource.namespace.as_str(), resource.group.as_str(), verbs))
            .or_default()
            .insert(&resource.plural);
    }
    let mut roles = BTreeMap::<&str, Vec<String>>::new();
    for ((namespace, group, verbs), resources) in joined {
        let list = |items: &BTreeSet<&str>| items.iter().copied().collect::<Vec<_>>().join(", ");
        roles.entry(namespace).or_default().push(format!(
            "{{apiGroups: [\"{group}\"], resources: [{}], verbs: [{}]}}",
            list(&resources),
            list(verbs)
        ));
    }
    let mut texts: Vec<_> = roles
        .into_iter()
        .map(|(namespace, rules)| match namespace {
            "" => format!("add to the rules of its ClusterRole: [{}]", rules.join(", ")),
            namespace => format!(
                "add to the rules of its Role in namespace {namespace}: [{}]",
                rules.join(", ")
            ),
        })
        .collect();
    if !texts.is_empty() && denied.unchecked > 0 {
        texts.push(format!("{} further rights were not checked", denied.unchecked));
    }
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use serde_json::{Value, json};

    use super::*;

    fn right(namespace: &str, group: &str, plural: &str) -> Resource {
        Resource {
            namespace: namespace.to_owned(),
            group: group.to_owned(),
            plural: plural.to_owned(),
            name: String::new(),
        }
    }

    #[test]
    fn rules_are_joined_by_role_group_and_verbs() {
        let rights = RightsByResource::from([
            (right("", "", "pods"), BTreeSet::from(["list", "watch"])),
            (right("", "", "secrets"), BTreeSet::from(["watch", "list"])),
            (right("", "apps", "deployments"), BTreeSet::from(["patch"])),
            (right("shop", "", "configmaps"), BTreeSet::from(["list"])),
        ]);
        let denied = Denied { rights, unchecked: 7 };
        assert_eq!(
            rules(&denied),
            "add to the rules of its ClusterRole: \
             [{apiGroups: [\"\"], resources: [pods, secrets], verbs: [list, watch]}, \
             {apiGroups: [\"apps\"], resources: [deployments], verbs: [patch]}]; \
             add to the rules of its Role in namespace shop: \
             [{apiGroups: [\"\"], resources: [configmaps], verbs: [list]}]; \
             7 further rights were not checked"
        );
        assert_eq!(
            rules(&Denied {
                rights: RightsByResource::new(),
                unchecked: 7
            }),
            ""
        );
    }

    /// A server that answers a review with this function of its attributes. `None`: it has no reviews.
    fn server(answer: fn(&Value) -> Option<bool>) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let body = request.into_body().collect().await.expect("a body").to_bytes();
                let mut review: Value = serde_json::from_slice(&body).expect("a review");
                let allowed = answer(&review["spec"]["resourceAttributes"]);
                let code = if allowed.is_some() { 201 } else { 404 };
                review["status"] = match allowed {
                    Some(allowed) => json!({ "allowed": allowed }),
                    None => json!("Failure"),
                };
                let response = Response::builder().status(code);
                let response = response.body(Full::new(bytes::Bytes::from(review.to_string())));
                Ok::<_, Infallible>(response.expect("a response"))
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn review_asks_about_subresources_and_names() {
        let (client, asked) = server(|attributes| {
            let is_status = attributes["subresource"] == "status" && attributes["resource"] == "foos";
            let is_lease = attributes["name"] == "mine" || attributes["verb"] == "create";
            Some(is_status || is_lease)
        });
        let lease = Resource {
            name: "mine".to_owned(),
            ..right("n", "coordination.k8s.io", "leases")
        };
        let required = RightsByResource::from([
            (right("", "example.com", "foos"), BTreeSet::from(["patch"])),
            (right("", "example.com", "foos/status"), BTreeSet::from(["patch"])),
            (lease, BTreeSet::from(["create", "get", "update"])),
        ]);
        let denied = review(&client, &required).await.expect("it answers");
        let expected = (right("", "example.com", "foos"), BTreeSet::from(["patch"]));
        assert_eq!(denied.rights, RightsByResource::from([expected]));
        assert_eq!((denied.unchecked, asked.load(Ordering::Relaxed)), (0, 5));
    }

    #[tokio::test]
    async fn reviews_are_bounded_and_a_server_without_them_is_asked_once() {
        let names = (0..300).map(|n| (right("", "", &format!("kind{n:03}")), BTreeSet::from(["get"])));
        let required: RightsByResource = names.collect();
        let (client, asked) = server(|_| Some(false));
        let denied = review(&client, &required).await.expect("it answers");
        assert_eq!((denied.rights.len(), denied.unchecked), (MAX_REVIEWS, 44));
        assert_eq!(asked.load(Ordering::Relaxed), MAX_REVIEWS);

        let (client, asked) = server(|_| None);
        assert_eq!(review(&client, &required).await, None);
        assert!(asked.load(Ordering::Relaxed) <= CONCURRENT_REVIEWS);
    }
}
