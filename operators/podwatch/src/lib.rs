//! Tells what happens to pods, or to any other kind, to whoever should know.
