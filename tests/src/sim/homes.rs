//! Switches in a run: an operator moves homes, backs out of it, and at the end opens every home again.

use std::sync::Arc;

use cadastre_core::ids::Name;
use cadastre_core::switch::Step;
use cadastre_protocol::operate::NewSwitch;
use global_authority::service::{Authority, ServiceError};

use super::callers::EVENTS;
use super::run::finish;
use super::world::World;

/// How long an operator waits for a switch to be begun, in milliseconds of virtual time.
const PATIENCE_MS: u64 = 8_000;
const WHO: &str = "simulator";

fn of(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// Moves one namespace, or all of them with or without a fence, from a region to the next one.
pub(super) fn switch(world: &World, authority: Arc<Authority>, r: usize) {
    let count = world.regions.len();
    if r >= count {
        return;
    }
    let region = |r: usize| of(&world.regions[r % count].name);
    let namespace = ["orders", "small", EVENTS, ""][usize::try_from(world.sim.below(4)).unwrap_or(0)];
    let namespace = (!namespace.is_empty()).then(|| of(namespace));
    let fence = namespace.is_none() && world.sim.one_in(2);
    let new = NewSwitch { namespace, from: region(r), to: region(r + 1), fence };
    let begun = finish(world, PATIENCE_MS, async move { authority.new_switch(WHO, new).await });
    if let Some(Ok(view)) = begun {
        world.say(format!("a switch from {} to {} is {}", view.from, view.to, view.step.as_str()));
    }
}

/// Backs out of every switch that is under way.
pub(super) fn back_out(world: &World, authority: Arc<Authority>) {
    let _ = finish(world, PATIENCE_MS, async move { back_out_of_all(&authority).await });
}

async fn back_out_of_all(authority: &Authority) -> Result<(), ServiceError> {
    for view in authority.switches().await?.switches {
        if view.step != Step::Done && view.step != Step::BackedOut {
            authority.back_out(WHO, &view.switch_id.to_string()).await?;
        }
    }
    Ok(())
}

/// Nothing is under way, and every region serves every namespace again.
pub(super) async fn open_all(authority: &Authority) -> Result<(), ServiceError> {
    back_out_of_all(authority).await?;
    for namespace in ["orders", "small", EVENTS] {
        let patch = serde_json::from_value(serde_json::json!({"home": []})).expect("a patch");
        authority.patch_namespace(WHO, &of(namespace), patch).await?;
    }
    Ok(())
}
