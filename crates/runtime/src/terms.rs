//! Terms of leadership, in which a controller may reconcile. Without leader election there is one endless term.

use tokio::{sync::watch, time::Instant};

use crate::election::{Epoch, Fence, Leadership};

/// The sequence of terms in which this process leads.
#[derive(Clone)]
pub(crate) struct Terms(Option<ElectedTerms>);

#[derive(Clone)]
struct ElectedTerms {
    leadership: watch::Receiver<Leadership>,
    fence: Fence,
}

/// One term, from its start to the expiry of its lease.
pub(crate) struct Term(Option<ElectedTerm>);

struct ElectedTerm {
    epoch: Epoch,
    /// No other process can lead before this time, which each renewal moves.
    valid_until: Instant,
    elected: ElectedTerms,
}

impl Terms {
    /// One endless term.
    pub(crate) fn endless() -> Self {
        Self(None)
    }

    /// The terms of an election, with writes behind its fence.
    pub(crate) fn elected(leadership: watch::Receiver<Leadership>, fence: Fence) -> Self {
        Self(Some(ElectedTerms { leadership, fence }))
    }

    /// Completes when a term begins, or has begun. Cancellation-safe.
    pub(crate) async fn next(&mut self) -> Term {
        let Some(elected) = &mut self.0 else {
            return Term(None);
        };
        loop {
            let now = elected.leadership.borrow_and_update().clone();
            if let Leadership::Leader { epoch, valid_until } = now {
                return Term(Some(ElectedTerm {
                    epoch,
                    valid_until,
                    elected: elected.clone(),
                }));
            }
            if elected.leadership.changed().await.is_err() {
                // The election has ended; there are no further terms.
                return std::future::pending().await;
            }
        }
    }
}

impl Term {
    /// The term's epoch; `None` without leader election.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.0.as_ref().map(|led| led.epoch)
    }

    /// A client whose writes are valid only in this term.
    pub(crate) fn client(&self, client: kube::Client) -> kube::Client {
        match &self.0 {
            None => client,
            Some(led) => led.elected.fence.client_for_epoch(client, led.epoch),
        }
    }

    /// Completes when leadership is lost: no new work may start, and running work has until [`expired`](Self::expired).
    /// Cancellation-safe.
    pub(crate) async fn lost(&mut self) {
        let Some(led) = &mut self.0 else {
            return std::future::pending().await;
        };
        loop {
            let now = led.elected.leadership.borrow_and_update().clone();
            match now {
                Leadership::Leader { epoch, valid_until } if epoch == led.epoch => {
                    led.valid_until = valid_until;
                }
                _ => return,
            }
            if led.elected.leadership.changed().await.is_err() {
                return;
            }
        }
    }

    /// Completes when another process may lead. Cancellation-safe.
    pub(crate) async fn expired(&mut self) {
        self.lost().await;
        if let Some(led) = &self.0 {
            tokio::time::sleep_until(led.valid_until).await;
        }
    }
}
