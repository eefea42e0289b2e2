//! The fence: what is written, and what is not, by a process that may not lead any more.

mod lab;

use k8s_openapi::api::{authorization::v1::SelfSubjectAccessReview, core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use lab::{Candidate, Fault, SECOND, config, connect, holder, settle, write};
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
    *FenceError::of(&error).expect("as is_fenced says")
}

/// 192: nobody writes before it leads; reads, rehearsals and reviews are free.
#[tokio::test(start_paused = true)]
async fn a_follower_reads_but_does_not_write() {
    let server = server();
    let leader = Candidate::start(&server, config());
    leader.leads().await;
    write(&leader.fence.client(leader.client.clone()), "a")
        .await
        .expect("a leader writes");

    let follower = Candidate::start(&server, config());
    settle().await;
    let client = follower.fence.client(follower.client.clone());
    assert_eq!(client.default_namespace(), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    follower.line.log();
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
    assert!(follower.line.log().is_empty(), "nothing was sent");

    maps.get("a").await.expect("a read passes");
    let rehearsal = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut object = ConfigMap::default();
    object.metadata.name = Some("b".to_owned());
    maps.create(&rehearsal, &object)
        .await
        .expect("a rehearsal passes");
    let review = Api::<SelfSubjectAccessReview>::all(client)
        .create(&PostParams::default(), &SelfSubjectAccessReview::default())
        .await;
    assert!(!review.is_err_and(|error| is_fenced(&error)), "a review passes");
}

/// 192: past the end of the lease nothing is written, even by work that ignores the loss; until then it may finish.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_past_the_end_of_the_lease() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.leads().await;
    let won = Instant::now();
    // Work has its own connection, which stays.
    let (client, line) = connect(&server);
    let client = candidate.fence.client(client);
    candidate.line.always(Some(Fault::Lost));
    candidate.follows().await;
    assert_eq!(won.elapsed(), SECOND * 12);
    write(&client, "finished")
        .await
        .expect("the lease is not over yet");
    tokio::time::sleep_until(won + SECOND * 14).await;
    write(&client, "last").await.expect("the lease is not over yet");
    tokio::time::sleep_until(won + SECOND * 57 / 4).await;
    line.log();
    assert_eq!(why(write(&client, "late").await), FenceError::NotLeading);
    assert!(line.log().is_empty(), "nothing was sent");
    candidate.crash().await;
}

/// A write on its way when the lease ends comes back as unknown; one that is answered in time does not.
#[tokio::test(start_paused = true)]
async fn a_write_on_its_way_is_dropped_when_the_lease_ends() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.leads().await;
    let won = Instant::now();
    candidate.line.always(Some(Fault::Lost));
    let slowly = |name: &'static str, time| {
        let (client, line) = connect(&server);
        line.always(Some(Fault::Slow(time)));
        let writing = write(&candidate.fence.client(client), name);
        async move { (writing.await, won.elapsed()) }
    };
    let ((in_time, _), too_late) = tokio::join!(slowly("a", SECOND * 14), slowly("b", SECOND * 15));
    in_time.expect("the answer came in time");
    let (late, after) = too_late;
    assert_eq!(why(late), FenceError::OutcomeUnknown);
    assert!(after >= SECOND * 57 / 4 && after < SECOND * 58 / 4, "{after:?}");
    candidate.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_prolongs_a_write_on_its_way() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.leads().await;
    let (client, line) = connect(&server);
    line.next([Some(Fault::Slow(SECOND * 100))]);
    write(&candidate.fence.client(client), "a")
        .await
        .expect("the lease was renewed all the time");
    candidate.stop().await.expect("it stops when asked");
}

/// 192: what ran in one term does not write in the next, in which somebody else may have led between.
#[tokio::test(start_paused = true)]
async fn a_client_of_an_old_term_stays_shut_in_the_next() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    let first = candidate.leads().await;
    let (client, line) = connect(&server);
    let old = candidate.fence.client_of(client.clone(), first);
    let any = candidate.fence.client(client.clone());
    write(&old, "a").await.expect("it leads in this term");
    line.next([Some(Fault::Slow(SECOND * 100))]);
    let on_its_way = tokio::spawn(write(&any, "b"));
    candidate.line.always(Some(Fault::Lost));
    candidate.follows().await;
    candidate.line.always(None);
    let second = candidate.leads().await;
    assert!(second > first);
    assert_eq!(why(write(&old, "c").await), FenceError::NotLeading);
    let on_its_way = on_its_way.await.expect("no panic");
    assert_eq!(why(on_its_way), FenceError::OutcomeUnknown);
    let new = candidate.fence.client_of(client, second);
    write(&new, "c").await.expect("it leads in this term");
    write(&any, "d").await.expect("it leads");
    candidate.stop().await.expect("it stops when asked");
}

/// The lease is not given back while writes are on their way: they are dropped first.
#[tokio::test(start_paused = true)]
async fn the_fence_closes_before_the_lease_is_released() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.leads().await;
    let (client, line) = connect(&server);
    let client = candidate.fence.client(client);
    line.always(Some(Fault::Lost));
    // Nobody polls this write, so nobody drops it.
    let mut stuck = Box::pin(write(&client, "a"));
    assert!(futures::poll!(&mut stuck).is_pending());
    settle().await;
    assert!(futures::poll!(&mut stuck).is_pending());
    let asked = Instant::now();
    let (identity, stopping) = (candidate.status.identity().to_owned(), candidate.line.clone());
    stopping.log();
    let stopped = tokio::spawn(candidate.stop());
    tokio::time::sleep(SECOND * 9).await;
    assert_eq!(holder(&server).await, identity);
    assert!(stopping.log().is_empty());
    assert_eq!(why(stuck.await), FenceError::OutcomeUnknown);
    stopped.await.expect("no panic").expect("it stops when asked");
    assert!(asked.elapsed() < SECOND * 10);
    assert_eq!(holder(&server).await, "");
    assert_eq!(why(write(&client, "b").await), FenceError::NotLeading);
}

/// The fence's error is recognised through a client around the fenced one.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_recognised_through_other_layers() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.line.always(Some(Fault::Lost));
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
