//! Messages between the protocol and its driver.

use std::time::Duration;

use crate::watch_error::WatchError;

/// The next action of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this list request; answer with [`Input::Page`] or [`Input::ListFailed`].
    List(ListCall),
    /// Send this watch request; answer with [`Input::WatchFailed`], or with any number of [`Input::Event`] and
    /// [`Input::Bookmark`] and then [`Input::StreamEnded`], [`Input::StreamFailed`] or [`Input::TimedOut`].
    Watch(WatchCall),
    /// Do nothing for this long; answer with [`Input::Waited`].
    Wait(Duration),
}

/// The parameters of a list request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListCall {
    /// Empty: the newest state, by quorum read. `0`: any state. Otherwise: not older than this.
    pub resource_version: String,
    /// `None`: everything in one response.
    pub limit: Option<u32>,
    /// The token of the previous page.
    pub continue_token: Option<String>,
}

/// The parameters of a watch request. Bookmarks are always requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchCall {
    /// Changes after this version; with initial events, a state that is not older.
    pub resource_version: String,
    /// The watch first sends every object (`sendInitialEvents`) and marks the end of these events.
    pub initial_events: bool,
    /// When the server ends the watch (`timeoutSeconds`).
    pub timeout: Duration,
}

/// A result of a step.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A page of a list.
    Page {
        /// The version of the list as a whole.
        resource_version: &'a str,
        /// The token of the next page, unless this is the last.
        continue_token: Option<&'a str>,
    },
    /// A list request failed.
    ListFailed(&'a WatchError),
    /// A watch request failed before any event.
    WatchFailed(&'a WatchError),
    /// An `ADDED`, `MODIFIED` or `DELETED` event, decodable or not.
    Event {
        /// The type.
        event_type: EventType,
        /// The object's version; empty if it could not be read.
        resource_version: &'a str,
    },
    /// A `BOOKMARK` event.
    Bookmark {
        /// Everything up to this version has been sent.
        resource_version: &'a str,
        /// It marks the end of the initial events.
        initial_events_end: bool,
    },
    /// An `ERROR` event.
    StreamFailed(&'a WatchError),
    /// The stream ended, by the server or the network.
    StreamEnded,
    /// Nothing was received until the [read deadline](super::ListWatch::read_deadline).
    TimedOut,
    /// The time of [`Step::Wait`] has passed.
    Waited,
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The object exists in this state and is new to the watch.
    Added,
    /// The object exists in this state.
    Modified,
    /// The object was deleted; this was its last state.
    Deleted,
}

/// What the driver does with the payload of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// Nothing.
    None,
    /// Stage the objects of the page or event.
    Stage,
    /// Remove the event's object from the staged ones.
    Unstage,
    /// Stage the objects of the page, then replace the content of the store with the staged objects.
    Replace,
    /// Drop the staged objects: the list starts again.
    Discard,
    /// Drop the staged objects. The server does not stream the initial state, so it is listed; that is not an error.
    Fallback,
    /// Store the object.
    Apply,
    /// Remove the object.
    Remove,
    /// Store only the resource version that was reached.
    Advance,
    /// Remove all objects: the kind was uninstalled.
    Clear,
}

/// What happens to the objects while the server does not serve the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnserved {
    /// They are removed: the kind was uninstalled.
    #[default]
    Clear,
    /// They stay until a list succeeds.
    Keep,
}
