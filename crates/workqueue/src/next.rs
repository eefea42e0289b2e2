//! The future behind [`WorkQueue::next`](crate::WorkQueue::next).

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{future, task};

use tokio::time::{Sleep, sleep_until};

use crate::WorkItem;
use crate::core::PolledNext;
use crate::queue::Shared;

/// Waits for a key, or until the queue is exhausted. Only the timekeeper among the waiters has a timer (see `waiters`).
pub(crate) async fn wait<K: Clone, T>(shared: &Arc<Shared<K, T>>) -> Option<WorkItem<K, T>> {
    let mut waiter = Waiter { shared, id: None };
    let mut timer = pin!(None);
    future::poll_fn(|cx| waiter.poll(timer.as_mut(), cx)).await
}

/// A registered `next` call that waits. Dropping it removes it and passes its wake-up on to another waiter.
struct Waiter<'a, K, T> {
    shared: &'a Arc<Shared<K, T>>,
    id: Option<u32>,
}

impl<K: Clone, T> Waiter<'_, K, T> {
    fn poll(
        &mut self,
        mut timer: Pin<&mut Option<Sleep>>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<WorkItem<K, T>>> {
        loop {
            let found = self
                .shared
                .with_core(|core| core.poll_next(&mut self.id, cx.waker()));
            let deadline = match found {
                PolledNext::Key(hand) => {
                    return Poll::Ready(Some(WorkItem::new(Arc::clone(self.shared), hand)));
                }
                PolledNext::Exhausted => return Poll::Ready(None),
                PolledNext::Wait(deadline) => deadline,
            };
            let Some(deadline) = deadline else {
                timer.set(None);
                return Poll::Pending;
            };
            match timer.as_mut().as_pin_mut() {
                Some(timer) if timer.deadline() == deadline => {}
                Some(timer) => timer.reset(deadline),
                None => timer.set(Some(sleep_until(deadline))),
            }
            let timer = timer.as_mut().as_pin_mut().expect("set above");
            task::ready!(timer.poll(cx));
        }
    }
}

impl<K, T> Drop for Waiter<'_, K, T> {
    fn drop(&mut self) {
        if self.id.is_some() {
            self.shared.with_core(|core| core.leave(&mut self.id));
        }
    }
}
