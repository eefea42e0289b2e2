//! A work queue for controllers: each key in one hand at a time, priorities, delays, backoff, drain.
