//! The fence: which writes pass, and which do not, when a process may not lead any more.

use crate::candidates;

use candidates::{Candidate, Fault, SECOND, config, connect, holder, settle, write};
use k8s_openapi::api::{authorization::v1::SelfSubjectAccessReview, core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use tokio::time::Instant;
use tower::ServiceBuilder;
use windlass_apiserver::Server;
use windlass_runtime::{FenceError, is_fenced};

fn server() -> Server {
    Server::builder().build()
}

fn why(result: Result<ConfigMap, kube::Error>) -> FenceError {
    let error = result.expect_err("fenced");
    assert!(is_fenced(&error));
    *FenceError::find_in(&error).expect("a fence error")
}

/// Reads, dry runs and reviews pass.
#[tokio::test(start_paused = true)]
async fn follower_reads_but_does_not_write() {
    let server = server();
    let leader = Candidate::start(&server, config());
    leader.wait_until_leader().await;
    write(&leader.fence.client(leader.client.clone()), "a")
        .await
        .expect("a leader writes");

    let follower = Candidate::start(&server, config());
    settle().await;
    let client = follower.fence.client(follower.client.clone());
    assert_eq!(client.default_namespace(), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    follower.connection.log();
    assert_eq!(why(write(&client, "b").await), FenceError::NotLeading);
    let put = maps
        .replace("a", &PostParams::default(), &ConfigMap::default())
        .await;
    assert_eq!(why(put), FenceError::NotLeading);
    let patch = Patch::Merge(serde_json::json!({}));
    assert_eq!(
        why(maps.patch("a", &PatchParams::default(), &patch).await),
        FenceError::NotLeading
    );
    let deleted = maps.delete("a", &DeleteParams::default()).await;
    assert!(is_fenced(&deleted.expect_err("fenced")));
    assert!(follower.connection.log().is_empty(), "nothing was sent");

    maps.get("a").await.expect("a read passes");
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut object = ConfigMap::default();
    object.metadata.name = Some("b".to_owned());
    maps.create(&dry_run, &object).await.expect("a dry run passes");
    let review = Api::<SelfSubjectAccessReview>::all(client)
        .create(&PostParams::default(), &SelfSubjectAccessReview::default())
        .await;
    assert!(!review.is_err_and(|error| is_fenced(&error)), "a review passes");
}

/// Even by work that ignores the loss; before the expiry it may finish.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_lease_expires() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.wait_until_leader().await;
    let won = Instant::now();
    // Work has its own connection, which stays.
    let (client, connection) = connect(&server);
    let client = candidate.fence.client(client);
    candidate.connection.always(Some(Fault::Lost));
    candidate.wait_until_follower().await;
    assert_eq!(won.elapsed(), SECOND * 12);
    write(&client, "finished")
        .await
        .expect("the lease has not expired");
    tokio::time::sleep_until(won + SECOND * 14).await;
    write(&client, "last").await.expect("the lease has not expired");
    tokio::time::sleep_until(won + SECOND * 57 / 4).await;
    connection.log();
    assert_eq!(why(write(&client, "late").await), FenceError::NotLeading);
    assert!(connection.log().is_empty(), "nothing was sent");
    candidate.crash().await;
}

/// A write in flight when the lease ends fails as unknown; one that is answered in time succeeds.
#[tokio::test(start_paused = true)]
async fn write_in_flight_is_cancelled_when_the_lease_ends() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.wait_until_leader().await;
    let won = Instant::now();
    candidate.connection.always(Some(Fault::Lost));
    let slowly = |name: &'static str, time| {
        let (client, connection) = connect(&server);
        connection.always(Some(Fault::Slow(time)));
        let writing = write(&candidate.fence.client(client), name);
        async move { (writing.await, won.elapsed()) }
    };
    let ((in_time, _), too_late) = tokio::join!(slowly("a", SECOND * 14), slowly("b", SECOND * 15));
    in_time.expect("answered in time");
    let (late, after) = too_late;
    assert_eq!(why(late), FenceError::OutcomeUnknown);
    assert!(after >= SECOND * 57 / 4 && after < SECOND * 58 / 4, "{after:?}");
    candidate.crash().await;
}

#[tokio::test(start_paused = true)]
async fn renewal_extends_a_write_in_flight() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.wait_until_leader().await;
    let (client, connection) = connect(&server);
    connection.next([Some(Fault::Slow(SECOND * 100))]);
    write(&candidate.fence.client(client), "a")
        .await
        .expect("the lease was renewed");
    candidate.stop().await.expect("stops cleanly");
}

/// Work of one term does not write in the next, because another process may have led in between.
#[tokio::test(start_paused = true)]
async fn client_of_an_old_term_cannot_write_in_the_next() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    let first = candidate.wait_until_leader().await;
    let (client, connection) = connect(&server);
    let old = candidate.fence.client_for_epoch(client.clone(), first);
    let any = candidate.fence.client(client.clone());
    write(&old, "a").await.expect("leads in this term");
    connection.next([Some(Fault::Slow(SECOND * 100))]);
    let in_flight = tokio::spawn(write(&any, "b"));
    candidate.connection.always(Some(Fault::Lost));
    candidate.wait_until_follower().await;
    candidate.connection.always(None);
    let second = candidate.wait_until_leader().await;
    assert!(second > first);
    assert_eq!(why(write(&old, "c").await), FenceError::NotLeading);
    let in_flight = in_flight.await.expect("no panic");
    assert_eq!(why(in_flight), FenceError::OutcomeUnknown);
    let new = candidate.fence.client_for_epoch(client, second);
    write(&new, "c").await.expect("leads in this term");
    write(&any, "d").await.expect("it leads");
    candidate.stop().await.expect("stops cleanly");
}

/// The lease is not released while writes are in flight: they are cancelled first.
#[tokio::test(start_paused = true)]
async fn fence_closes_before_the_lease_is_released() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.wait_until_leader().await;
    let (client, connection) = connect(&server);
    let client = candidate.fence.client(client);
    connection.always(Some(Fault::Lost));
    // This write is not polled, so it is not cancelled.
    let mut stuck = Box::pin(write(&client, "a"));
    assert!(futures::poll!(&mut stuck).is_pending());
    settle().await;
    assert!(futures::poll!(&mut stuck).is_pending());
    let asked = Instant::now();
    let (identity, stopping) = (
        candidate.status.identity().to_owned(),
        candidate.connection.clone(),
    );
    stopping.log();
    let stopped = tokio::spawn(candidate.stop());
    tokio::time::sleep(SECOND * 9).await;
    assert_eq!(holder(&server).await, identity);
    assert!(stopping.log().is_empty());
    assert_eq!(why(stuck.await), FenceError::OutcomeUnknown);
    stopped.await.expect("no panic").expect("stops cleanly");
    assert!(asked.elapsed() < SECOND * 10);
    assert_eq!(holder(&server).await, "");
    assert_eq!(why(write(&client, "b").await), FenceError::NotLeading);
}

/// The fence's error is recognised through a client around the fenced one.
#[tokio::test(start_paused = true)]
async fn fence_error_is_recognised_through_other_layers() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.connection.always(Some(Fault::Lost));
    let layered = ServiceBuilder::new()
        .layer(candidate.fence.layer())
        .service(server.clone());
    let inner = Client::new(layered, "default");
    let outer = Client::new(
        tower::service_fn(move |request| {
            let inner = inner.clone();
            async move { inner.send(request).await }
        }),
        "default",
    );
    let error = write(&outer, "a").await.expect_err("fenced");
    assert!(is_fenced(&error));
    let missing = Api::<ConfigMap>::default_namespaced(outer).get("x").await;
    assert!(!is_fenced(&missing.expect_err("there is none")));
    candidate.crash().await;
}
