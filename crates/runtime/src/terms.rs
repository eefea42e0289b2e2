//! When a controller may reconcile: always, or in the terms in which this process is the leader.

use tokio::{sync::watch, time::Instant};

use crate::election::{Epoch, Fence, Leadership};

/// Gives the terms, one after the other.
#[derive(Clone)]
pub(crate) struct Terms(Option<Elected>);

#[derive(Clone)]
struct Elected {
    leadership: watch::Receiver<Leadership>,
    fence: Fence,
}

/// One term, from its beginning to the end of its lease.
pub(crate) struct Term(Option<Led>);

struct Led {
    epoch: Epoch,
    /// Until when nobody else can lead, unless it is renewed.
    until: Instant,
    elected: Elected,
}

impl Terms {
    /// One term without an end.
    pub(crate) fn endless() -> Self {
        Self(None)
    }

    /// The terms that an election gives, with writes behind its fence.
    pub(crate) fn elected(leadership: watch::Receiver<Leadership>, fence: Fence) -> Self {
        Self(Some(Elected { leadership, fence }))
    }

    /// Returns when a term begins, or has begun. Cancellation-safe.
    pub(crate) async fn next(&mut self) -> Term {
        let Some(elected) = &mut self.0 else {
            return Term(None);
        };
        loop {
            let now = elected.leadership.borrow_and_update().clone();
            if let Leadership::Leader { epoch, valid_until } = now {
                return Term(Some(Led {
                    epoch,
                    until: valid_until,
                    elected: elected.clone(),
                }));
            }
            if elected.leadership.changed().await.is_err() {
                // The election is over, and nobody will be told anything again.
                return std::future::pending().await;
            }
        }
    }
}

impl Term {
    /// Its number; `None` without an election.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.0.as_ref().map(|led| led.epoch)
    }

    /// The client, for writes of this term and no other.
    pub(crate) fn client(&self, client: kube::Client) -> kube::Client {
        match &self.0 {
            None => client,
            Some(led) => led.elected.fence.client_of(client, led.epoch),
        }
    }

    /// Returns when the term is over: nothing new may start, and what runs has until [`expired`](Self::expired).
    /// Cancellation-safe.
    pub(crate) async fn lost(&mut self) {
        let Some(led) = &mut self.0 else {
            return std::future::pending().await;
        };
        loop {
            let now = led.elected.leadership.borrow_and_update().clone();
            match now {
                Leadership::Leader { epoch, valid_until } if epoch == led.epoch => led.until = valid_until,
                _ => return,
            }
            if led.elected.leadership.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns when another process may lead. Cancellation-safe.
    pub(crate) async fn expired(&mut self) {
        self.lost().await;
        if let Some(led) = &self.0 {
            tokio::time::sleep_until(led.until).await;
        }
    }
}
