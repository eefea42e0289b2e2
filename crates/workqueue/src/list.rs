//! First-in-first-out lists, doubly linked through an array, so that removing an item from the middle takes constant
//! time and no list allocates per item.
//!
//! A [`List`] holds only its ends; the links of item `i` are at `links[i]`. Many lists may share one array as long as
//! an item is in at most one of them.

/// No item: the end of a list, or a link that is not in use.
pub(crate) const NONE: u32 = u32::MAX;

/// The neighbours of one item. Meaningful only while the item is in a list.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    prev: u32,
    next: u32,
}

impl Link {
    /// The links of an item that is in no list.
    pub(crate) const FREE: Self = Self {
        prev: NONE,
        next: NONE,
    };
}

/// The two ends of a list.
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };

    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// Appends `item`, which is in no list.
    #[inline]
    pub(crate) fn push_back(&mut self, links: &mut [Link], item: u32) {
        links[item as usize] = Link {
            prev: self.tail,
            next: NONE,
        };
        match self.tail {
            NONE => self.head = item,
            tail => links[tail as usize].next = item,
        }
        self.tail = item;
    }

    /// Removes `item`, which is in this list.
    #[inline]
    pub(crate) fn remove(&mut self, links: &mut [Link], item: u32) {
        let Link { prev, next } = links[item as usize];
        match prev {
            NONE => self.head = next,
            prev => links[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => links[next as usize].prev = prev,
        }
    }

    /// Renames the item `from`, which is in this list, to `to`. It keeps its position.
    pub(crate) fn renumber(&mut self, links: &mut [Link], from: u32, to: u32) {
        let link = links[from as usize];
        links[to as usize] = link;
        match link.prev {
            NONE => self.head = to,
            prev => links[prev as usize].next = to,
        }
        match link.next {
            NONE => self.tail = to,
            next => links[next as usize].prev = to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(list: &List, links: &[Link]) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = list.head;
        while at != NONE {
            found.push(at);
            at = links[at as usize].next;
        }
        found
    }

    #[test]
    fn order_is_kept_when_items_are_removed_or_renumbered() {
        let mut links = [Link::FREE; 8];
        let mut list = List::EMPTY;
        for item in [3, 1, 4, 5] {
            list.push_back(&mut links, item);
        }
        assert_eq!(items(&list, &links), [3, 1, 4, 5]);

        list.renumber(&mut links, 1, 7);
        list.renumber(&mut links, 3, 0);
        list.renumber(&mut links, 5, 2);
        assert_eq!(items(&list, &links), [0, 7, 4, 2]);

        list.remove(&mut links, 7);
        list.remove(&mut links, 0);
        list.remove(&mut links, 2);
        assert_eq!(items(&list, &links), [4]);

        list.remove(&mut links, 4);
        assert_eq!((list.front(), list.tail), (None, NONE));
    }
}
