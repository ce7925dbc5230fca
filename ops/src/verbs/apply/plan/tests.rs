//! What is compared, and what is refused.

use super::*;

fn wanted(text: &str) -> Wanted {
    toml::from_str(text).unwrap()
}

fn held() -> Held {
    let service = json!({"name": "shop", "namespaces": ["orders"], "limits": {"batch": 100}, "tokens": []});
    let service: ServiceView = serde_json::from_value(service).unwrap();
    Held { services: BTreeMap::from([(service.name.clone(), service)]), ..Held::default() }
}

const NEW: &str = "[namespaces.orders]\nfrozen = true\n[services.shop]\nnamespaces = [\"orders\"]\nlimits.batch = 7";

#[test]
fn what_is_new_is_made_and_what_differs_is_changed() {
    let plan = compare(&wanted(NEW), &held()).unwrap();
    let calls: Vec<(Call, &str)> = plan.steps.iter().map(|it| (it.call, it.path.as_str())).collect();
    let orders = (Call::Patch, "/v1/namespaces/orders");
    assert_eq!(calls, [(Call::Post, "/v1/namespaces"), orders, (Call::Patch, "/v1/services/shop")]);
    assert_eq!(plan.steps[2].body, json!({"limits": {"batch": 7}}));
    let last = plan.lines.last().unwrap();
    assert_eq!((last.setting.as_str(), &last.from, &last.to), ("limits.batch", &Some(json!(100)), &json!(7)));
}

#[test]
fn every_reason_is_told_at_once_and_an_unknown_key_has_its_name() {
    let text = "[namespaces.a]\nhome = [\"mars\"]\n[services.shop]\nnamespaces = [\"b\"]";
    let refusals = compare(&wanted(text), &held()).unwrap_err();
    assert_eq!(refusals, ["namespace a: home: there is no mars", "service shop: namespaces: there is no b"]);
    let error = toml::from_str::<Wanted>("[namespaces.a]\nfrosen = true").unwrap_err().to_string();
    assert!(error.contains("frosen") && error.contains("frozen"), "{error}");
}
