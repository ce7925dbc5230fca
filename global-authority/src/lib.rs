//! The global authority: grants large disjoint ranges of a namespace to regions.
//!
//! | room | what |
//! |---|---|
//! | `config` | what a person may set |
//! | `http` | the API and the page: parse, authenticate, call the service, map errors, nothing else |
//! | `service` | the decisions around the store, one room per noun |
//! | `sql` | the authority's tables, and all SQL over them |

pub mod service;
pub mod sql;
