//! Deliberate faults of one machine, one at a time and thread: its tests must find each. They exist with
//! the feature `planted` alone, which no wheel has. Faults of the rest of the data plane: `core/log/src/planted.rs`.

/// The faults of one machine: `Bug`, all of them by name as `BUGS`, and the switch of this thread.
macro_rules! planted_bugs {
    ($(#[$rules:meta])* pub enum Bug { $($(#[$breaks:meta])* $bug:ident = $name:literal,)+ }) => {
        $(#[$rules])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$breaks])* $bug,)+
        }

        /// All, by name.
        #[cfg(feature = "planted")]
        #[allow(dead_code)] // for tests
        pub const BUGS: &[(&str, Bug)] = &[$(($name, Bug::$bug),)+];

        #[cfg(feature = "planted")]
        thread_local! {
            static ON: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
        }

        /// Switch one fault on for this thread, or all off.
        #[cfg(feature = "planted")]
        #[allow(dead_code)] // for tests
        pub fn plant(bug: Option<Bug>) {
            ON.set(bug);
        }

        #[cfg(feature = "planted")]
        pub fn is_on(bug: Bug) -> bool {
            ON.get() == Some(bug)
        }

        #[cfg(not(feature = "planted"))]
        #[inline]
        pub const fn is_on(_: Bug) -> bool {
            false
        }
    };
}
