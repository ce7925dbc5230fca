//! Kubernetes: every pod has what a pod of ours must have, and everything that refers to something finds it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{read, yaml};

/// Every object that `kubectl apply -k` makes.
pub fn objects() -> Vec<Value> {
    let list = yaml("ops/kubernetes/kustomization.yaml").remove(0);
    let files = list["resources"].as_array().unwrap().clone();
    assert!(files.len() >= 4);
    files.iter().flat_map(|file| yaml(&format!("ops/kubernetes/{}", file.as_str().unwrap()))).collect()
}

fn of_kind<'a>(all: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    all.iter().filter(move |it| it["kind"] == kind)
}

/// What runs: Deployment and StatefulSet.
fn workloads(all: &[Value]) -> Vec<&Value> {
    of_kind(all, "Deployment").chain(of_kind(all, "StatefulSet")).collect()
}

/// The settings of a workload's container, secrets looked up, `$(NAME)` laid out.
pub fn environment(workload: &Value, secrets: &BTreeMap<&str, String>) -> BTreeMap<String, String> {
    let container = &workload["spec"]["template"]["spec"]["containers"][0];
    let mut found = BTreeMap::new();
    for entry in container["env"].as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let secret = &entry["valueFrom"]["secretKeyRef"];
        let value = match (entry["value"].as_str(), secret["key"].as_str()) {
            (Some(value), _) => value.to_owned(),
            (None, Some(key)) => match secrets.get(key) {
                Some(value) => value.clone(),
                None if secret["optional"] == true => continue,
                None => panic!("{name}: no secret {key}"),
            },
            (None, None) => format!("{}-0", workload["metadata"]["name"].as_str().unwrap()),
        };
        let laid_out = found.iter().fold(value, |value: String, (other, text): (&String, &String)| {
            value.replace(&format!("$({other})"), text)
        });
        found.insert(name.to_owned(), laid_out);
    }
    found
}

#[test]
fn every_pod_has_the_least_privileges_and_both_probes() {
    let all = objects();
    let found = workloads(&all);
    assert_eq!(found.len(), 2);
    for workload in found {
        let name = &workload["metadata"]["name"];
        let pod = &workload["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        assert_eq!(pod["enableServiceLinks"], false, "{name}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > 10, "requests under way get 10 s");
        let container = &pod["containers"][0];
        let expected = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}});
        assert_eq!(container["securityContext"], expected, "{name}");
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz", "{name}");
        assert_eq!(container["startupProbe"]["httpGet"]["path"], "/healthz", "{name}");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz", "{name}");
        assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
        // A read-only root: whatever the daemon writes has to lie on a volume.
        let settings = environment(workload, &secrets());
        let mounts = container["volumeMounts"].as_array().unwrap();
        let lies = mounts.iter().any(|it| settings["CADASTRE_DATA"].starts_with(it["mountPath"].as_str().unwrap()));
        assert!(lies, "{name}: {} is on no volume", settings["CADASTRE_DATA"]);
        // It listens where it is probed.
        let port = container["ports"][0]["containerPort"].as_u64().unwrap();
        assert!(settings["CADASTRE_LISTEN"].ends_with(&format!(":{port}")), "{name}");
        for secret in ["CADASTRE_DATABASE_URL", "CADASTRE_WITNESS", "CADASTRE_REGION_TOKEN", "CADASTRE_BOOTSTRAP_TOKEN"]
        {
            let entries = container["env"].as_array().unwrap();
            assert!(entries.iter().filter(|it| it["name"] == secret).all(|it| it.get("value").is_none()), "{name}");
        }
    }
}

fn secrets() -> BTreeMap<&'static str, String> {
    ["database-url", "witness", "bootstrap-token", "region-token"].map(|key| (key, "x".to_owned())).into()
}

#[test]
fn authorities_are_three_and_agents_have_a_volume_each() {
    let all = objects();
    let authority = of_kind(&all, "Deployment").next().unwrap();
    assert_eq!(authority["spec"]["replicas"], 3);
    let agents = of_kind(&all, "StatefulSet").next().unwrap();
    assert!(agents["spec"]["replicas"].as_u64().unwrap() >= 2);
    assert_eq!(agents["spec"]["volumeClaimTemplates"].as_array().unwrap().len(), 1);
    // Each agent has a name of its own, that the authority finds it by.
    let headless = of_kind(&all, "Service").find(|it| it["metadata"]["name"] == agents["spec"]["serviceName"]).unwrap();
    assert_eq!(
        (&headless["spec"]["clusterIP"], &headless["spec"]["publishNotReadyAddresses"]),
        (&json!("None"), &json!(true))
    );
    let address = environment(agents, &secrets())["CADASTRE_ADVERTISE_URL"].clone();
    assert_eq!(address, "http://cadastre-eu-0.cadastre-eu-agents.cadastre.svc:7410");
    let service = of_kind(&all, "Service").any(|it| {
        let url = environment(agents, &secrets())["CADASTRE_AUTHORITY_URL"].clone();
        url == format!("http://{}.cadastre.svc:7400", it["metadata"]["name"].as_str().unwrap())
    });
    assert!(service, "the authority's address is a Service");
}

/// Each selector finds pods; each workload has a disruption budget and a network policy.
#[test]
fn selectors_budgets_and_policies_cover_every_pod() {
    let all = objects();
    let labels: Vec<&Value> = workloads(&all).iter().map(|it| &it["spec"]["template"]["metadata"]["labels"]).collect();
    let covers = |selector: &Value, pod: &Value| {
        selector.as_object().is_some_and(|map| map.iter().all(|(key, value)| pod.get(key) == Some(value)))
    };
    for service in of_kind(&all, "Service") {
        assert!(labels.iter().any(|pod| covers(&service["spec"]["selector"], pod)), "{service}");
    }
    for workload in workloads(&all) {
        let pod = &workload["spec"]["template"]["metadata"]["labels"];
        assert!(covers(&workload["spec"]["selector"]["matchLabels"], pod), "{workload}");
        let budget =
            of_kind(&all, "PodDisruptionBudget").find(|it| covers(&it["spec"]["selector"]["matchLabels"], pod));
        assert_eq!(budget.expect("a budget")["spec"]["maxUnavailable"], 1);
        let policy = of_kind(&all, "NetworkPolicy").find(|it| covers(&it["spec"]["podSelector"]["matchLabels"], pod));
        assert_eq!(policy.expect("a policy")["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    }
    let space = of_kind(&all, "Namespace").next().unwrap();
    assert_eq!(space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    assert!(!read("ops/kubernetes/kustomization.yaml").contains("newTag: latest"));
}
