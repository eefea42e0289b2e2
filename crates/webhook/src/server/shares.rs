//! Shares of the memory for bodies: of all clients, and of each address.
//!
//! Bytes count when they arrive, so a client that announces a large body and sends nothing holds nothing. A small body has
//! room that large ones cannot take, and an address has at most half of everything.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use parking_lot::Mutex;

/// A body of up to this size may use all of the memory. Larger ones leave a quarter to those.
const SMALL_BYTES: usize = 256 * 1024;

/// The bytes of all bodies.
#[derive(Debug)]
pub(super) struct Shares {
    limit: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: usize,
    /// No entry is 0.
    by_peer: HashMap<IpAddr, usize>,
}

/// The bytes of one body, until dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    peer: IpAddr,
    bytes: usize,
}

impl Shares {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: Mutex::default(),
        })
    }

    pub(super) fn share(self: &Arc<Self>, peer: IpAddr) -> Share {
        Share {
            shares: self.clone(),
            peer,
            bytes: 0,
        }
    }
}

impl Share {
    /// Takes room for more bytes. Returns whether there is some.
    pub(super) fn grow(&mut self, by: usize) -> bool {
        let limit = self.shares.limit;
        let mut used = self.shares.used.lock();
        let of_peer = used.by_peer.get(&self.peer).copied().unwrap_or_default();
        let available = if self.bytes + by <= SMALL_BYTES {
            limit
        } else {
            limit - limit / 4
        };
        if used.all + by > available || of_peer + by > limit / 2 {
            return false;
        }
        used.all += by;
        if by > 0 {
            used.by_peer.insert(self.peer, of_peer + by);
        }
        self.bytes += by;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut used = self.shares.used.lock();
        used.all -= self.bytes;
        if let Some(of_peer) = used.by_peer.get_mut(&self.peer) {
            *of_peer -= self.bytes;
            if *of_peer == 0 {
                used.by_peer.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn small_bodies_and_other_addresses_have_room() {
        let shares = Shares::new(16 * MIB);
        let [a, b, c]: [IpAddr; 3] =
            ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| ip.parse().expect("an address"));
        let mut first = shares.share(a);
        assert!(first.grow(8 * MIB));
        assert!(!first.grow(1), "an address has half");
        let mut second = shares.share(b);
        assert!(second.grow(4 * MIB));
        assert!(!second.grow(1), "a quarter is for small bodies");
        assert!(shares.share(c).grow(SMALL_BYTES));
        assert!(!shares.share(c).grow(SMALL_BYTES + 1));
        drop(first);
        assert!(second.grow(4 * MIB));
        drop(second);
        let used = shares.used.lock();
        assert_eq!((used.all, used.by_peer.len()), (0, 0));
    }
}
