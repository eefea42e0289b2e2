//! Leader election on an embedded server: who leads when, what is sent for it, and how it ends.

mod lab;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use lab::{Candidate, Fault, SECOND, config, connect, holder, lease, settle};
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
async fn one_candidate_leads_and_the_others_know_it() {
    let server = server();
    let first = Candidate::start(&server, config().identity("first"));
    assert_eq!(first.leads().await, Epoch(0));
    let second = Candidate::start(&server, config().identity("second"));
    tokio::time::sleep(SECOND * 300).await;
    assert!(first.status.is_leader() && !second.status.is_leader());
    assert_eq!(second.follows_holder().as_deref(), Some(first.status.identity()));
    assert!(first.status.identity().starts_with("first_"));
    first.stop().await.expect("it stops when asked");
    second.stop().await.expect("it stops when asked");
}

/// 118: a leader renews with one update per retry period.
#[tokio::test(start_paused = true)]
async fn a_leader_renews_without_reading() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.leads().await;
    tokio::time::sleep(SECOND * 7).await;
    assert_eq!(candidate.line.log(), ["GET", "POST", "PUT", "PUT", "PUT"]);
    assert_eq!(candidate.status.slow_paths(), 0);
    candidate.stop().await.expect("it stops when asked");
}

/// 114, 118, 120: who meets another writer reads and tries again; the term and foreign labels stay.
#[tokio::test(start_paused = true)]
async fn a_leader_that_meets_another_writer_reads_and_renews() {
    let server = server();
    let candidate = Candidate::start(&server, config().label("ours", "1"));
    candidate.leads().await;
    let acquired = lease(&server).await.and_then(|lease| lease.spec?.acquire_time);
    let label = serde_json::json!({"metadata": {"labels": {"theirs": "1"}}});
    let patch = Patch::Merge(&label);
    leases(&server)
        .patch("lock", &PatchParams::default(), &patch)
        .await
        .expect("labelled");
    tokio::time::sleep(SECOND * 3).await;
    assert_eq!(candidate.line.log(), ["GET", "POST", "PUT", "GET", "PUT"]);
    assert_eq!(candidate.status.slow_paths(), 1);
    let lease = lease(&server).await.expect("it is there");
    let labels = lease.metadata.labels.expect("it has labels");
    assert_eq!(labels.into_keys().collect::<Vec<_>>(), ["ours", "theirs"]);
    let spec = lease.spec.expect("it has a spec");
    assert_eq!((spec.lease_transitions, spec.acquire_time), (Some(0), acquired));
    candidate.stop().await.expect("it stops when asked");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_lease_runs_out_and_another_leads() {
    let server = server();
    let first = Candidate::start(&server, config());
    first.leads().await;
    let second = Candidate::start(&server, config());
    settle().await;
    let crashed = Instant::now();
    first.crash().await;
    assert_eq!(second.leads().await, Epoch(1));
    let waited = crashed.elapsed();
    assert!(waited > SECOND * 14 && waited < SECOND * 20, "{waited:?}");
    second.stop().await.expect("it stops when asked");
}

/// 116, 157: a leader keeps its lease until its work ended, and then gives it back.
#[tokio::test(start_paused = true)]
async fn a_leader_keeps_its_lease_until_its_work_ended() {
    let server = server();
    let mut first = Candidate::start(&server, config());
    first.leads().await;
    let second = Candidate::start(&server, config());
    first.begin_stop();
    tokio::time::sleep(SECOND * 100).await;
    assert!(first.status.is_leader(), "its work goes on");
    let released = Instant::now();
    first.stop().await.expect("it stops when asked");
    assert_eq!(holder(&server).await, "");
    assert_eq!(second.leads().await, Epoch(1));
    assert!(released.elapsed() < SECOND * 5);
    second.stop().await.expect("it stops when asked");
}

/// 157: a leader that loses its lease while its work is ending does not compete again, and still waits for the work
/// before it releases anything.
#[tokio::test(start_paused = true)]
async fn a_loss_while_work_ends_releases_nothing_before_its_end() {
    let server = server();
    let mut candidate = Candidate::start(&server, config());
    candidate.leads().await;
    candidate.begin_stop();
    candidate.line.always(Some(Fault::Lost));
    candidate.follows().await;
    candidate.line.always(None);
    candidate.line.log();
    tokio::time::sleep(SECOND * 60).await;
    assert!(!candidate.is_finished() && !candidate.status.is_leader());
    assert!(candidate.line.log().is_empty());
    assert_eq!(holder(&server).await, candidate.status.identity());
    candidate.stop().await.expect("it stops when asked");
    assert_eq!(holder(&server).await, "");
}

/// 157: a candidate that stops does not become the leader, even if it asked for the lease already.
#[tokio::test(start_paused = true)]
async fn a_candidate_that_stops_is_not_elected() {
    let server = server();
    let mut candidate = Candidate::start(&server, config());
    candidate.line.next([None, Some(Fault::AnswerLost)]);
    settle().await;
    assert_ne!(holder(&server).await, "", "the server gave it the lease");
    candidate.begin_stop();
    settle().await;
    assert!(candidate.is_finished(), "there is no work to wait for");
    let status = candidate.status.clone();
    candidate.stop().await.expect("it stops when asked");
    assert_eq!(status.leadership().epoch(), None);
    assert_eq!(holder(&server).await, "");
}

/// 116: a candidate that never asked for the lease sends nothing when it stops.
#[tokio::test(start_paused = true)]
async fn a_follower_stops_without_a_request() {
    let server = server();
    let leader = Candidate::start(&server, config());
    leader.leads().await;
    let follower = Candidate::start(&server, config());
    settle().await;
    let line = follower.line.clone();
    assert_eq!(line.log(), ["GET"]);
    follower.stop().await.expect("it stops when asked");
    assert!(line.log().is_empty());
    assert_eq!(holder(&server).await, leader.status.identity());
    leader.stop().await.expect("it stops when asked");
}

/// 116: a release reads first, tries again after a conflict, and is content if the lease is gone.
#[tokio::test(start_paused = true)]
async fn a_release_reads_first_and_tries_again() {
    let cases: [(&[Option<Fault>], &[&str]); 4] = [
        (&[], &["GET", "PUT"]),
        (&[None, Some(Fault::Refused(409))], &["GET", "PUT", "GET", "PUT"]),
        (&[Some(Fault::Refused(500))], &["GET", "GET", "PUT"]),
        (&[None, Some(Fault::AnswerLost)], &["GET", "PUT", "GET"]),
    ];
    for (faults, expected) in cases {
        let server = server();
        let candidate = Candidate::start(&server, config());
        candidate.leads().await;
        let line = candidate.line.clone();
        line.log();
        line.next(faults.iter().copied());
        candidate.stop().await.expect("it stops when asked");
        assert_eq!(line.log(), expected);
        assert_eq!(holder(&server).await, "");
    }
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.leads().await;
    leases(&server)
        .delete("lock", &DeleteParams::default())
        .await
        .expect("deleted");
    candidate.stop().await.expect("it stops when asked");
    assert!(lease(&server).await.is_none());
}

/// 116: a renewal that is on its way when the work ends does not keep the lease.
#[tokio::test(start_paused = true)]
async fn a_release_follows_a_renewal_that_was_interrupted() {
    for fault in [Fault::Lost, Fault::AnswerLost] {
        let server = server();
        let candidate = Candidate::start(&server, config());
        candidate.leads().await;
        candidate.line.next([Some(fault)]);
        tokio::time::sleep(SECOND * 3).await;
        candidate.stop().await.expect("it stops when asked");
        assert_eq!(holder(&server).await, "", "{fault:?}");
    }
}

/// 116: a release is given up after the renew deadline.
#[tokio::test(start_paused = true)]
async fn a_release_does_not_take_forever() {
    let server = server();
    let candidate = Candidate::start(&server, config());
    candidate.leads().await;
    candidate.line.always(Some(Fault::Lost));
    let asked = Instant::now();
    candidate.stop().await.expect("it stops when asked");
    assert!(asked.elapsed() <= SECOND * 10, "{:?}", asked.elapsed());
}

/// 192: after a loss the process stands by, and is elected again in a new term.
#[tokio::test(start_paused = true)]
async fn a_loser_stands_by_and_is_elected_again_in_a_new_term() {
    let server = server();
    let first = Candidate::start(&server, config());
    assert_eq!(first.leads().await, Epoch(0));
    first.line.always(Some(Fault::Lost));
    first.follows().await;
    let second = Candidate::start(&server, config());
    assert_eq!(second.leads().await, Epoch(1));
    first.line.always(None);
    tokio::time::sleep(SECOND * 30).await;
    assert_eq!(first.follows_holder().as_deref(), Some(second.status.identity()));
    second.stop().await.expect("it stops when asked");
    assert_eq!(first.leads().await, Epoch(2));
    first.stop().await.expect("it stops when asked");
}

#[tokio::test(start_paused = true)]
async fn a_loser_exits_if_it_is_told_to() {
    let server = server();
    let candidate = Candidate::start(&server, config().on_loss(OnLoss::Exit));
    candidate.leads().await;
    candidate.line.always(Some(Fault::Refused(500)));
    let (status, began) = (candidate.status.clone(), Instant::now());
    let error = candidate.ends().await.expect_err("it lost");
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

/// A candidate whose server does not answer goes on trying.
#[tokio::test(start_paused = true)]
async fn a_candidate_survives_a_server_that_is_away() {
    let server = server();
    let candidate = Candidate::start(&server, config().on_loss(OnLoss::Exit));
    for fault in [Fault::Lost, Fault::Refused(403), Fault::Refused(503)] {
        candidate.line.always(Some(fault));
        tokio::time::sleep(SECOND * 60).await;
    }
    candidate.line.always(None);
    candidate.leads().await;
    candidate.stop().await.expect("it stops when asked");
}

/// 193: a lease of 300 ms runs out after 300 ms.
#[tokio::test(start_paused = true)]
async fn a_lease_of_less_than_a_second_is_honoured() {
    let milliseconds = Duration::from_millis;
    let config = || {
        config()
            .lease_duration(milliseconds(300))
            .renew_deadline(milliseconds(200))
            .retry_period(milliseconds(40))
    };
    let server = server();
    let first = Candidate::start(&server, config());
    first.leads().await;
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
    second.leads().await;
    let waited = crashed.elapsed();
    assert!(
        waited >= milliseconds(220) && waited <= milliseconds(430),
        "{waited:?}"
    );
    second.stop().await.expect("it stops when asked");
}

/// 119: a leader whose election is not driven any more is unhealthy once its lease and the tolerance are over.
#[tokio::test(start_paused = true)]
async fn a_leader_that_nobody_drives_becomes_unhealthy() {
    let (client, _line) = connect(&server());
    let election = Election::new(client, config()).expect("a good configuration");
    let status = election.status();
    let never = std::future::pending::<()>;
    let mut running = Box::pin(election.run_until(never(), never()));
    tokio::select! {
        _ = &mut running => unreachable!("nobody stops it"),
        epoch = status.changed_from(None) => assert_eq!(epoch, Some(Epoch(0))),
    }
    tokio::time::sleep(SECOND * 24).await;
    assert_eq!(status.check(SECOND * 10), Ok(()));
    tokio::time::sleep(SECOND * 2).await;
    let error = status.check(SECOND * 10).expect_err("overdue");
    assert!(error.to_string().contains("lease `lock`"), "{error}");
    drop(running);
    assert!(!status.is_leader(), "what is dropped does not lead");
}
