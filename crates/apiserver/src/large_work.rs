//! Threads for large work, so that it does not delay other requests.

use std::sync::Arc;

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
};

/// Does large work where it does not delay other requests.
#[derive(Clone)]
pub(crate) struct LargeWork {
    /// Work on more bytes is large.
    most: usize,
    /// Limits the threads that do large work. `None` in the process and on a current-thread runtime: the caller's thread
    /// does it.
    threads: Option<Arc<Semaphore>>,
}

impl LargeWork {
    /// In the process, the caller's thread does all work.
    pub(crate) fn in_process(most: usize) -> Self {
        Self { most, threads: None }
    }

    /// For a server on a socket.
    pub(crate) fn on_socket(most: usize) -> Self {
        if Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread {
            return Self::in_process(most);
        }
        // Large work is CPU-bound: more threads than cores would not finish sooner. One core stays free for small work.
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() - 1);
        Self {
            most,
            threads: Some(Arc::new(Semaphore::new(threads.max(1)))),
        }
    }

    pub(crate) fn is_large(&self, size: usize) -> bool {
        size > self.most
    }

    /// The size up to which work is small.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Does work on `size` bytes: on this thread if small, otherwise on a thread that handles no other request.
    pub(crate) async fn run<T>(&self, size: usize, work: impl FnOnce() -> T) -> T {
        match &self.threads {
            Some(threads) if self.is_large(size) => {
                let _one = threads.acquire().await;
                tokio::task::block_in_place(work)
            }
            _ => work(),
        }
    }

    /// Does a part of large work. Where there is no thread for it, other tasks run before.
    pub(crate) async fn run_part<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.threads.is_none() {
            tokio::task::yield_now().await;
        }
        self.run(usize::MAX, work).await
    }
}
