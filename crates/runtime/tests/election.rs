//! Leader election on an embedded server: the leader, the requests, and the release.

use crate::candidates;

use std::time::Duration;

use candidates::{Candidate, Fault, SECOND, config, connect, holder, lease, settle};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use tokio::time::Instant;
use windlass_apiserver::Server;
use windlass_runtime::{Election, ElectionError, Epoch, Leadership, OnLoss};

fn server() -> Server {
    Server::builder().build()
}

fn leases(server: &Server) -> Api<Lease> {
    Api::default_namespaced(Client::new(server.clone(), "default"))
}

#[tokio::test(start_paused = true)]
async fn one_candidate_leads_and_the_others_know_its_identity() {
    let server = server();
    let first = Candidate::start(&server, config().identity("first"));
    assert_eq!(first.wait_until_leader().await, Epoch(0));
    let second = Candidate::start(&server, config().identity("second"));
    tokio::time::sleep(SECOND * 300).await;
    assert!(first.status.is_leader() && !second.status.is_leader());
    assert_eq!(second.follows_holder().as_deref(), Some(first.status.identity()));
    assert!(first.status.identity().starts_with("first_"));
    first.stop().await.expect("stops cleanly");
    second.stop().await.expect("stops cleanly");
}

/// One update per retry period.
#[tokio::test(start_paused = true)]
async fn leader_renews_without_reading() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.wait_until_leader().await;
    tokio::time::sleep(SECOND * 7).await;
    assert_eq!(candidate.connection.log(), ["GET", "POST", "PUT", "PUT", "PUT"]);
    assert_eq!(candidate.status.slow_paths(), 0);
    candidate.stop().await.expect("stops cleanly");
}

/// The term and foreign labels are kept.
#[tokio::test(start_paused = true)]
async fn leader_reads_and_renews_after_a_conflict() {
    let server = server();
    let candidate = Candidate::start(&server, config().label("ours", "1"));
    candidate.wait_until_leader().await;
    let acquired = lease(&server).await.and_then(|lease| lease.spec?.acquire_time);
    let label = serde_json::json!({"metadata": {"labels": {"theirs": "1"}}});
    let patch = Patch::Merge(&label);
    leases(&server)
        .patch("lock", &PatchParams::default(), &patch)
        .await
        .expect("labelled");
    tokio::time::sleep(SECOND * 3).await;
    assert_eq!(candidate.connection.log(), ["GET", "POST", "PUT", "GET", "PUT"]);
    assert_eq!(candidate.status.slow_paths(), 1);
    let lease = lease(&server).await.expect("exists");
    let labels = lease.metadata.labels.expect("it has labels");
    assert_eq!(labels.into_keys().collect::<Vec<_>>(), ["ours", "theirs"]);
    let spec = lease.spec.expect("it has a spec");
    assert_eq!((spec.lease_transitions, spec.acquire_time), (Some(0), acquired));
    candidate.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn another_candidate_leads_after_the_lease_of_a_crashed_leader_expires() {
    let server = server();
    let first = Candidate::start(&server, config());
    first.wait_until_leader().await;
    let second = Candidate::start(&server, config());
    settle().await;
    let crashed = Instant::now();
    first.crash().await;
    assert_eq!(second.wait_until_leader().await, Epoch(1));
    let waited = crashed.elapsed();
    assert!(waited > SECOND * 14 && waited < SECOND * 20, "{waited:?}");
    second.stop().await.expect("stops cleanly");
}

/// Then it releases the lease.
#[tokio::test(start_paused = true)]
async fn leader_keeps_its_lease_until_its_work_has_ended() {
    let server = server();
    let mut first = Candidate::start(&server, config());
    first.wait_until_leader().await;
    let second = Candidate::start(&server, config());
    first.begin_stop();
    tokio::time::sleep(SECOND * 100).await;
    assert!(first.status.is_leader(), "its work continues");
    let released = Instant::now();
    first.stop().await.expect("stops cleanly");
    assert_eq!(holder(&server).await, "");
    assert_eq!(second.wait_until_leader().await, Epoch(1));
    assert!(released.elapsed() < SECOND * 5);
    second.stop().await.expect("stops cleanly");
}

/// A leader that loses its lease while its work is ending does not compete again, and still waits for the work
/// before it releases anything.
#[tokio::test(start_paused = true)]
async fn lease_lost_during_shutdown_is_not_released_before_the_work_ends() {
    let server = server();
    let mut candidate = Candidate::start(&server, config());
    candidate.wait_until_leader().await;
    candidate.begin_stop();
    candidate.connection.always(Some(Fault::Lost));
    candidate.wait_until_follower().await;
    candidate.connection.always(None);
    candidate.connection.log();
    tokio::time::sleep(SECOND * 60).await;
    assert!(!candidate.is_finished() && !candidate.status.is_leader());
    assert!(candidate.connection.log().is_empty());
    assert_eq!(holder(&server).await, candidate.status.identity());
    candidate.stop().await.expect("stops cleanly");
    assert_eq!(holder(&server).await, "");
}

/// Even if its request for the lease is in flight.
#[tokio::test(start_paused = true)]
async fn stopping_candidate_is_not_elected() {
    let server = server();
    let mut candidate = Candidate::start(&server, config());
    candidate.connection.next([None, Some(Fault::ResponseLost)]);
    settle().await;
    assert_ne!(holder(&server).await, "", "the server gave it the lease");
    candidate.begin_stop();
    settle().await;
    assert!(candidate.is_finished(), "there is no work to wait for");
    let status = candidate.status.clone();
    candidate.stop().await.expect("stops cleanly");
    assert_eq!(status.leadership().epoch(), None);
    assert_eq!(holder(&server).await, "");
}

/// A candidate that never tried to take the lease sends nothing when it stops.
#[tokio::test(start_paused = true)]
async fn follower_stops_without_a_request() {
    let server = server();
    let leader = Candidate::start(&server, config());
    leader.wait_until_leader().await;
    let follower = Candidate::start(&server, config());
    settle().await;
    let connection = follower.connection.clone();
    assert_eq!(connection.log(), ["GET"]);
    follower.stop().await.expect("stops cleanly");
    assert!(connection.log().is_empty());
    assert_eq!(holder(&server).await, leader.status.identity());
    leader.stop().await.expect("stops cleanly");
}

/// A release reads first, retries after a conflict, and succeeds if the lease is deleted.
#[tokio::test(start_paused = true)]
async fn release_reads_first_and_retries() {
    let cases: [(&[Option<Fault>], &[&str]); 4] = [
        (&[], &["GET", "PUT"]),
        (&[None, Some(Fault::Refused(409))], &["GET", "PUT", "GET", "PUT"]),
        (&[Some(Fault::Refused(500))], &["GET", "GET", "PUT"]),
        (&[None, Some(Fault::ResponseLost)], &["GET", "PUT", "GET"]),
    ];
    for (faults, expected) in cases {
        let server = server();
        let candidate = Candidate::start(&server, config());
        candidate.wait_until_leader().await;
        let connection = candidate.connection.clone();
        connection.log();
        connection.next(faults.iter().copied());
        candidate.stop().await.expect("stops cleanly");
        assert_eq!(connection.log(), expected);
        assert_eq!(holder(&server).await, "");
    }
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.wait_until_leader().await;
    leases(&server)
        .delete("lock", &DeleteParams::default())
        .await
        .expect("deleted");
    candidate.stop().await.expect("stops cleanly");
    assert!(lease(&server).await.is_none());
}

/// A renewal in flight when the work ends does not keep the lease.
#[tokio::test(start_paused = true)]
async fn release_follows_an_interrupted_renewal() {
    for fault in [Fault::Lost, Fault::ResponseLost] {
        let server = server();
        let candidate = Candidate::start(&server, config());
        candidate.wait_until_leader().await;
        candidate.connection.next([Some(fault)]);
        tokio::time::sleep(SECOND * 3).await;
        candidate.stop().await.expect("stops cleanly");
        assert_eq!(holder(&server).await, "", "{fault:?}");
    }
}

/// At most the renew deadline.
#[tokio::test(start_paused = true)]
async fn release_is_retried_only_until_the_renew_deadline() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.wait_until_leader().await;
    candidate.connection.always(Some(Fault::Lost));
    let asked = Instant::now();
    candidate.stop().await.expect("stops cleanly");
    assert!(asked.elapsed() <= SECOND * 10, "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn candidate_stands_by_after_a_loss_and_is_elected_again_in_a_new_term() {
    let server = server();
    let first = Candidate::start(&server, config());
    assert_eq!(first.wait_until_leader().await, Epoch(0));
    first.connection.always(Some(Fault::Lost));
    first.wait_until_follower().await;
    let second = Candidate::start(&server, config());
    assert_eq!(second.wait_until_leader().await, Epoch(1));
    first.connection.always(None);
    tokio::time::sleep(SECOND * 30).await;
    assert_eq!(first.follows_holder().as_deref(), Some(second.status.identity()));
    second.stop().await.expect("stops cleanly");
    assert_eq!(first.wait_until_leader().await, Epoch(2));
    first.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn candidate_exits_after_a_loss_if_configured() {
    let server = server();
    let candidate = Candidate::start(&server, config().on_loss(OnLoss::Exit));
    candidate.wait_until_leader().await;
    candidate.connection.always(Some(Fault::Refused(500)));
    let (status, began) = (candidate.status.clone(), Instant::now());
    let error = candidate
        .wait_until_ended()
        .await
        .expect_err("the lease was lost");
    assert_eq!(
        error,
        ElectionError::Lost {
            lease: "default/lock".to_owned()
        }
    );
    assert!(error.to_string().starts_with("leader election lost"));
    assert_eq!(began.elapsed().as_secs(), 12);
    assert!(matches!(status.leadership(), Leadership::Follower { .. }));
}

/// It keeps trying while the server does not answer.
#[tokio::test(start_paused = true)]
async fn candidate_survives_an_unreachable_server() {
    let server = server();
    let candidate = Candidate::start(&server, config().on_loss(OnLoss::Exit));
    for fault in [Fault::Lost, Fault::Refused(403), Fault::Refused(503)] {
        candidate.connection.always(Some(fault));
        tokio::time::sleep(SECOND * 60).await;
    }
    candidate.connection.always(None);
    candidate.wait_until_leader().await;
    candidate.stop().await.expect("stops cleanly");
}

/// A lease of 300 ms expires after 300 ms.
#[tokio::test(start_paused = true)]
async fn lease_of_less_than_a_second_is_respected() {
    let milliseconds = Duration::from_millis;
    let config = || {
        config()
            .lease_duration(milliseconds(300))
            .renew_deadline(milliseconds(200))
            .retry_period(milliseconds(40))
    };
    let server = server();
    let first = Candidate::start(&server, config());
    first.wait_until_leader().await;
    let second = Candidate::start(&server, config());
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(first.epoch(), Some(0));
    let spec = lease(&server)
        .await
        .and_then(|lease| lease.spec)
        .expect("written");
    assert_eq!(spec.lease_duration_seconds, Some(1), "whole seconds for others");
    let crashed = Instant::now();
    first.crash().await;
    second.wait_until_leader().await;
    let waited = crashed.elapsed();
    assert!(
        waited >= milliseconds(220) && waited <= milliseconds(430),
        "{waited:?}"
    );
    second.stop().await.expect("stops cleanly");
}

/// After the lease duration and the tolerance.
#[tokio::test(start_paused = true)]
async fn leader_whose_election_is_not_polled_becomes_unhealthy() {
    let (client, _line) = connect(&server());
    let election = Election::new(client, config()).expect("valid configuration");
    let status = election.status();
    let never = std::future::pending::<()>;
    let mut running = Box::pin(election.run_until(never(), never()));
    tokio::select! {
        _ = &mut running => unreachable!("not stopped"),
        epoch = status.changed_from(None) => assert_eq!(epoch, Some(Epoch(0))),
    }
    tokio::time::sleep(SECOND * 24).await;
    assert_eq!(status.check(SECOND * 10), Ok(()));
    tokio::time::sleep(SECOND * 2).await;
    let error = status.check(SECOND * 10).expect_err("stale leader");
    assert!(error.to_string().contains("lease `lock`"), "{error}");
    drop(running);
    assert!(!status.is_leader(), "a dropped election does not lead");
}
