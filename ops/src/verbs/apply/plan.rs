//! A file and what the authority says: what has to change, or why it cannot.
//!
//! Invariant: pure. Whatever can be told from what the authority shows is refused here, before the first call;
//! the authority has the last word on each call.

use std::collections::{BTreeMap, BTreeSet};

use cadastre_core::ids::Name;
use cadastre_core::layout::Layout;
use cadastre_core::namespace::{NamespaceKind, Policy, Reader};
use cadastre_core::roster::Limits;
use cadastre_core::sequence::Sequence;
use cadastre_protocol::admin::{NamespacePatch, NamespaceView, NewNamespace, NewService, PolicyPatch};
use cadastre_protocol::admin::{ServicePatch, ServiceView};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The file. What is absent is left alone.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    #[serde(default)]
    namespaces: BTreeMap<Name, WantedNamespace>,
    #[serde(default)]
    services: BTreeMap<Name, WantedService>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WantedNamespace {
    kind: Option<NamespaceKind>,
    sequence: Option<Sequence>,
    layout: Option<Layout>,
    readers: Option<Vec<Reader>>,
    policy: PolicyPatch,
    /// An empty list is all regions.
    home: Option<Vec<Name>>,
    frozen: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WantedService {
    namespaces: Option<Vec<Name>>,
    limits: Map<String, Value>,
}

/// What the authority says.
#[derive(Debug, Default)]
pub struct Held {
    pub namespaces: BTreeMap<Name, NamespaceView>,
    pub services: BTreeMap<Name, ServiceView>,
    pub regions: BTreeSet<Name>,
}

/// One difference, for people and programs. Without `from` it is new.
#[derive(Debug, PartialEq, Serialize)]
pub struct Line {
    pub what: String,
    pub setting: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    pub to: Value,
}

/// How a step is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Post,
    Patch,
}

/// One call of the API.
#[derive(Debug, PartialEq)]
pub struct Step {
    pub call: Call,
    pub path: String,
    pub body: Value,
}

/// Everything that has to change, in order.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    pub lines: Vec<Line>,
    pub steps: Vec<Step>,
    /// Namespaces and services that are as the file says.
    pub same: usize,
    pub new_services: Vec<Name>,
}

impl Plan {
    fn line(&mut self, what: &str, setting: &str, from: Option<Value>, to: Value) {
        self.lines.push(Line { what: what.to_owned(), setting: setting.to_owned(), from, to });
    }

    fn step(&mut self, call: Call, path: String, body: &impl Serialize) -> Result<(), String> {
        self.steps.push(Step { call, path, body: value(body)? });
        Ok(())
    }
}

/// What has to change.
///
/// # Errors
/// Every reason why the file cannot be applied.
pub fn compare(wanted: &Wanted, held: &Held) -> Result<Plan, Vec<String>> {
    let (mut plan, mut refusals) = (Plan::default(), Vec::new());
    for (name, want) in &wanted.namespaces {
        let what = format!("namespace {name}");
        let done = known("home", want.home.as_deref(), |it| held.regions.contains(it)).and_then(|()| {
            match held.namespaces.get(name) {
                Some(view) => change_namespace(&mut plan, &what, view, want),
                None => new_namespace(&mut plan, &what, name, want),
            }
        });
        refusals.extend(done.err().map(|why| format!("{what}: {why}")));
    }
    let exists = |it: &Name| held.namespaces.contains_key(it) || wanted.namespaces.contains_key(it);
    for (name, want) in &wanted.services {
        let what = format!("service {name}");
        let done =
            known("namespaces", want.namespaces.as_deref(), exists).and_then(|()| match held.services.get(name) {
                Some(view) => change_service(&mut plan, &what, view, want),
                None => new_service(&mut plan, &what, name, want),
            });
        refusals.extend(done.err().map(|why| format!("{what}: {why}")));
    }
    if refusals.is_empty() { Ok(plan) } else { Err(refusals) }
}

fn known(setting: &str, names: Option<&[Name]>, exists: impl Fn(&Name) -> bool) -> Result<(), String> {
    match names.unwrap_or_default().iter().find(|it| !exists(it)) {
        Some(name) => Err(format!("{setting}: there is no {name}")),
        None => Ok(()),
    }
}

fn new_namespace(plan: &mut Plan, what: &str, name: &Name, want: &WantedNamespace) -> Result<(), String> {
    let kind = want.kind.unwrap_or_default();
    if want.layout.is_some() && kind != NamespaceKind::Snowflake {
        return Err("layout: only a namespace of kind snowflake has one".to_owned());
    }
    if want.sequence.is_some() && kind != NamespaceKind::Range {
        return Err("sequence: only a namespace of kind range has one".to_owned());
    }
    let policy = Policy::default().fitting(want.sequence.unwrap_or_default().capacity());
    want.policy.apply(policy).check().map_err(|e| e.to_string())?;
    let new = NewNamespace {
        name: name.clone(),
        kind,
        sequence: want.sequence,
        layout: want.layout,
        readers: want.readers.clone().unwrap_or_default(),
        policy: want.policy.clone(),
    };
    plan.line(what, "", None, json!(kind.as_str()));
    plan.step(Call::Post, "/v1/namespaces".to_owned(), &new)?;
    let home = want.home.clone().filter(|home| !home.is_empty());
    let patch = NamespacePatch { home, frozen: want.frozen.filter(|it| *it), ..NamespacePatch::default() };
    if let Some(home) = &patch.home {
        plan.line(what, "home", None, value(home)?);
    }
    if patch.frozen.is_some() {
        plan.line(what, "frozen", None, json!(true));
    }
    if patch.home.is_some() || patch.frozen.is_some() {
        plan.step(Call::Patch, format!("/v1/namespaces/{name}"), &patch)?;
    }
    Ok(())
}

fn change_namespace(plan: &mut Plan, what: &str, held: &NamespaceView, want: &WantedNamespace) -> Result<(), String> {
    if let Some(kind) = want.kind.filter(|kind| *kind != held.kind) {
        return Err(format!("kind: it is {} and never becomes {}", held.kind.as_str(), kind.as_str()));
    }
    if want.layout.is_some() && want.layout != held.layout {
        return Err("layout: it never changes; make another namespace".to_owned());
    }
    let before = plan.lines.len();
    let mut patch = NamespacePatch::default();
    if let Some(sequence) = want.sequence.filter(|it| *it != held.sequence) {
        if held.kind != NamespaceKind::Range {
            return Err("sequence: only a namespace of kind range has one".to_owned());
        }
        held.definition.append(held.watermark, sequence).map_err(|e| e.to_string())?;
        plan.line(what, "sequence", Some(value(&held.sequence)?), value(&sequence)?);
        patch.sequence = Some(sequence);
    }
    let policy = want.policy.apply(held.policy);
    if policy != held.policy {
        policy.check().map_err(|e| e.to_string())?;
        settings(plan, what, "policy", &value(&held.policy)?, &value(&policy)?);
        patch.policy = Some(want.policy.clone());
    }
    if let Some(readers) = want.readers.as_ref().filter(|it| **it != held.readers) {
        plan.line(what, "readers", Some(value(&held.readers)?), value(readers)?);
        patch.readers = Some(readers.clone());
    }
    let set = |names: &[Name]| names.iter().cloned().collect::<BTreeSet<_>>();
    let home = held.home.clone().unwrap_or_default();
    if let Some(wanted) = want.home.as_ref().filter(|it| set(it) != set(&home)) {
        plan.line(what, "home", Some(value(&home)?), value(wanted)?);
        patch.home = Some(wanted.clone());
    }
    if let Some(frozen) = want.frozen.filter(|it| *it != held.frozen) {
        plan.line(what, "frozen", Some(json!(held.frozen)), json!(frozen));
        patch.frozen = Some(frozen);
    }
    if plan.lines.len() == before {
        plan.same += 1;
        return Ok(());
    }
    plan.step(Call::Patch, format!("/v1/namespaces/{}", held.name), &patch)
}

fn new_service(plan: &mut Plan, what: &str, name: &Name, want: &WantedService) -> Result<(), String> {
    let Some(namespaces) = want.namespaces.clone().filter(|it| !it.is_empty()) else {
        return Err("namespaces: a new service needs at least one".to_owned());
    };
    let limits = limits(want, Limits::default())?;
    plan.line(what, "", None, value(&namespaces)?);
    plan.new_services.push(name.clone());
    plan.step(Call::Post, "/v1/services".to_owned(), &NewService { name: name.clone(), namespaces, limits })
}

fn change_service(plan: &mut Plan, what: &str, held: &ServiceView, want: &WantedService) -> Result<(), String> {
    let before = plan.lines.len();
    let mut patch = ServicePatch::default();
    let set = |names: &[Name]| names.iter().cloned().collect::<BTreeSet<_>>();
    if let Some(namespaces) = want.namespaces.as_ref().filter(|it| set(it) != set(&held.namespaces)) {
        plan.line(what, "namespaces", Some(value(&held.namespaces)?), value(namespaces)?);
        patch.namespaces = Some(namespaces.clone());
    }
    let (old, new) = (value(&held.limits)?, value(&limits(want, held.limits)?)?);
    if old != new {
        settings(plan, what, "limits", &old, &new);
        patch.limits = Some(want.limits.clone());
    }
    if plan.lines.len() == before {
        plan.same += 1;
        return Ok(());
    }
    plan.step(Call::Patch, format!("/v1/services/{}", held.name), &patch)
}

fn limits(want: &WantedService, held: Limits) -> Result<Limits, String> {
    let patch = ServicePatch { namespaces: None, limits: Some(want.limits.clone()) };
    patch.limits_over(held).map_err(|e| format!("limits: {e}"))
}

/// A line for each setting of a group that differs.
fn settings(plan: &mut Plan, what: &str, group: &str, old: &Value, new: &Value) {
    let keys: BTreeSet<&String> = [old, new].iter().filter_map(|it| it.as_object()).flat_map(Map::keys).collect();
    for key in keys {
        let (from, to) = (old.get(key), new.get(key));
        if from != to {
            let or_null = |it: Option<&Value>| it.cloned().unwrap_or(Value::Null);
            plan.line(what, &format!("{group}.{key}"), Some(or_null(from)), or_null(to));
        }
    }
}

fn value(of: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(of).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests;
