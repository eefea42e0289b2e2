//! The waiting in [`WorkQueue::take`](crate::WorkQueue::take).

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{future, task};

use tokio::time::{Sleep, sleep_until};

use crate::Taken;
use crate::core::Found;
use crate::queue::Shared;

/// Waits for a key, or for the end. Each worker that waits sets a timer only if it was chosen to (see `waiters`).
pub(crate) async fn wait<K: Clone>(shared: &Arc<Shared<K>>) -> Option<Taken<K>> {
    let mut place = Place { shared, id: None };
    let mut timer = pin!(None);
    future::poll_fn(|cx| place.poll(timer.as_mut(), cx)).await
}

/// A take's place among those that wait. Dropping it leaves the place, and passes on a wake-up that came for it.
struct Place<'a, K> {
    shared: &'a Arc<Shared<K>>,
    id: Option<u32>,
}

impl<K: Clone> Place<'_, K> {
    fn poll(&mut self, mut timer: Pin<&mut Option<Sleep>>, cx: &mut Context<'_>) -> Poll<Option<Taken<K>>> {
        loop {
            let found = self.shared.change(|core| core.take(&mut self.id, cx.waker()));
            let deadline = match found {
                Found::Key(hand) => return Poll::Ready(Some(Taken::new(Arc::clone(self.shared), hand))),
                Found::End => return Poll::Ready(None),
                Found::Wait(deadline) => deadline,
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

impl<K> Drop for Place<'_, K> {
    fn drop(&mut self) {
        if self.id.is_some() {
            self.shared.change(|core| core.leave(&mut self.id));
        }
    }
}
