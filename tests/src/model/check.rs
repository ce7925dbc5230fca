//! Exhaustive checking at small bounds, with stateright.
