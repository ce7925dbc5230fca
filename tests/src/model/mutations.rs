//! Each rule taken out, and after how many walks that is found.
