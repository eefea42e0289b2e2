//! What goes between the protocol and its driver.

use std::time::Duration;

use crate::failure::Failure;

/// What the driver must do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this list request; answer with [`Input::Page`] or [`Input::ListFailed`].
    List(ListCall),
    /// Send this watch request; answer with [`Input::WatchFailed`], or with any number of [`Input::Event`] and
    /// [`Input::Bookmark`] and then [`Input::StreamEnded`] or [`Input::StreamFailed`].
    Watch(WatchCall),
    /// Do nothing for so long; answer with [`Input::Waited`].
    Wait(Duration),
}

/// The parameters of a list request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListCall {
    /// Empty: the newest state, by quorum. `0`: any state. Otherwise: not older than this.
    pub resource_version: String,
    /// `None`: everything in one response.
    pub limit: Option<u32>,
    /// The token of the previous page.
    pub continue_token: Option<String>,
}

/// The parameters of a watch request. Bookmarks are always asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchCall {
    /// Changes after this version; with initial events, a state that is not older.
    pub resource_version: String,
    /// The watch starts by telling of every object (`sendInitialEvents`), and marks the end of that.
    pub initial_events: bool,
    /// When the server is to end the watch.
    pub timeout: Duration,
}

/// What came back.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A page of a list.
    Page {
        /// The version of the list as a whole.
        resource_version: &'a str,
        /// Where the next page starts, unless this is the last.
        continue_token: Option<&'a str>,
    },
    /// A list request failed.
    ListFailed(&'a Failure),
    /// A watch request failed before any frame.
    WatchFailed(&'a Failure),
    /// An `ADDED`, `MODIFIED` or `DELETED` frame, decodable or not.
    Event {
        /// Which.
        event: Event,
        /// The object's version; empty if it could not be read.
        resource_version: &'a str,
    },
    /// A `BOOKMARK` frame.
    Bookmark {
        /// Everything up to this version has been sent.
        resource_version: &'a str,
        /// It marks the end of the initial events.
        initial_end: bool,
    },
    /// An `ERROR` frame.
    StreamFailed(&'a Failure),
    /// The stream ended, by the server, the network, or because it was silent for too long.
    StreamEnded,
    /// The time of [`Step::Wait`] has passed.
    Waited,
}

/// What a frame says about its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It exists in this state, and the watch has not told of it before.
    Added,
    /// It exists in this state.
    Modified,
    /// It is gone; this was its last state.
    Deleted,
}

/// What the driver must do with the payload of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// Nothing.
    None,
    /// Put the page's objects, or the frame's, aside.
    Stage,
    /// Take the frame's object away from what is aside.
    Unstage,
    /// Put the page's objects aside, then make all that is aside the content of the store.
    Replace,
    /// Forget what is aside: the list starts again.
    Discard,
    /// Store the object.
    Apply,
    /// Remove the object.
    Remove,
    /// Remove all objects: the kind does not exist any more.
    Clear,
}
