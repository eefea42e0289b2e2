//! When a controller may reconcile: always, or in the terms in which this process is the leader.

use tokio::{sync::watch, time::Instant};

/// A term of leadership, by its number.
pub(crate) type Number = u64;

/// Who leads, as the election sees it. `None`: not this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lead {
    pub(crate) number: Number,
    /// Until when nobody else can lead, unless it is renewed.
    pub(crate) until: Instant,
}

/// Gives the terms, one after the other.
#[derive(Clone)]
pub(crate) struct Terms(Option<watch::Receiver<Option<Lead>>>);

/// One term, from its beginning to the end of its lease.
pub(crate) struct Term {
    /// `None` without an election: the term never ends.
    lead: Option<Lead>,
    leads: Option<watch::Receiver<Option<Lead>>>,
}

impl Terms {
    /// One term without an end.
    pub(crate) fn endless() -> Self {
        Self(None)
    }

    /// The terms that an election gives.
    pub(crate) fn elected(leads: watch::Receiver<Option<Lead>>) -> Self {
        Self(Some(leads))
    }

    /// Returns when a term begins, or has begun. Cancellation-safe.
    pub(crate) async fn next(&mut self) -> Term {
        let Some(leads) = &mut self.0 else {
            return Term {
                lead: None,
                leads: None,
            };
        };
        // An error means that the election is over, and that nobody will be told anything again.
        let began = leads.wait_for(Option::is_some).await.map(|lead| *lead);
        let Ok(lead) = began else {
            return std::future::pending().await;
        };
        Term {
            lead,
            leads: Some(leads.clone()),
        }
    }

    /// Whether it is the leader, where there is an election.
    pub(crate) fn is_leading(&self) -> Option<bool> {
        self.0.as_ref().map(|leads| leads.borrow().is_some())
    }
}

impl Term {
    /// Its number; `None` without an election.
    pub(crate) fn number(&self) -> Option<Number> {
        self.lead.map(|lead| lead.number)
    }

    /// Returns when the term is over: nothing new may start, and what runs has until [`expired`](Self::expired).
    /// Cancellation-safe.
    pub(crate) async fn lost(&mut self) {
        let (Some(lead), Some(leads)) = (&mut self.lead, &mut self.leads) else {
            return std::future::pending().await;
        };
        loop {
            let now = *leads.borrow_and_update();
            match now {
                Some(now) if now.number == lead.number => *lead = now,
                _ => return,
            }
            if leads.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns when another process may lead. Cancellation-safe.
    pub(crate) async fn expired(&mut self) {
        self.lost().await;
        let until = self.lead.map(|lead| lead.until);
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}
