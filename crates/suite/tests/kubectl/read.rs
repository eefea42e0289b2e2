//! `kubectl get` and `describe`.

use anyhow::Result;
use windlass_suite::Context;

use crate::kubectl::{
    command::{Kubectl, cells},
    objects,
};

pub(crate) async fn get_prints_tables(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", &objects::both()).await?;
    kubectl
        .ok("create service clusterip web --tcp=80 --clusterip=None")
        .await?;
    kubectl
        .ok("create secret generic hidden --from-literal=key=value")
        .await?;
    let tables: [(&str, &[&[&str]]); 6] = [
        ("get configmap settings", &[&["NAME", "DATA"], &["settings", "2"]]),
        (
            "get deploy",
            &[
                &["NAME", "READY", "UP-TO-DATE", "AVAILABLE"],
                &["web", "0/2", "0", "0"],
            ],
        ),
        (
            "get deploy -o wide",
            &[
                &[
                    "NAME",
                    "READY",
                    "UP-TO-DATE",
                    "AVAILABLE",
                    "CONTAINERS",
                    "IMAGES",
                    "SELECTOR",
                ],
                &["web", "0/2", "0", "0", "main", "example.com/web:1", "app=web"],
            ],
        ),
        (
            "get svc",
            &[
                &["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)"],
                &["web", "ClusterIP", "None", "<none>", "80/TCP"],
            ],
        ),
        (
            "get secret",
            &[&["NAME", "TYPE", "DATA"], &["hidden", "Opaque", "1"]],
        ),
        (
            "get deploy web --show-labels",
            &[
                &["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "LABELS"],
                &["web", "0/2", "0", "0", "app=web"],
            ],
        ),
    ];
    for (line, expected) in tables {
        assert_eq!(cells(&kubectl.ok(line).await?), expected, "{line}");
    }
    let output = kubectl.ok("get deploy web --no-headers -L app").await?;
    assert_eq!(output.split_whitespace().last(), Some("web"));
    Ok(())
}

pub(crate) async fn get_prints_objects_and_fields(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", objects::SETTINGS).await?;
    let yaml = kubectl.ok("get configmap settings -o yaml").await?;
    assert!(
        yaml.starts_with("apiVersion: v1\ndata:\n  mode: slow\n  size: \"1\"\nkind: ConfigMap\nmetadata:\n  creationTimestamp: \""),
        "{yaml}"
    );
    let json: serde_json::Value = serde_json::from_str(&kubectl.ok("get configmap settings -o json").await?)?;
    assert_eq!(json["data"]["mode"], "slow");
    assert_eq!(json["metadata"]["namespace"], *kubectl.namespace);
    let list: serde_json::Value =
        serde_json::from_str(&kubectl.ok("get configmaps -l app=web -o json").await?)?;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&"List".into(), &"v1".into())
    );
    assert_eq!(list["items"][0]["kind"], "ConfigMap");
    let fields = [
        ("-o name", "configmap/settings\n"),
        ("-o 'jsonpath={.data.size}'", "1"),
        ("-o 'go-template={{.data.mode}}'", "slow"),
    ];
    for (format, expected) in fields {
        let output = kubectl.ok(&format!("get configmap settings {format}")).await?;
        assert_eq!(output, expected, "{format}");
    }
    Ok(())
}

pub(crate) async fn get_without_results_says_so(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let output = kubectl.run("get deployments").await?;
    assert_eq!(output.code, Some(0));
    assert_eq!(
        output.stderr,
        format!("No resources found in {} namespace.\n", kubectl.namespace)
    );
    assert_eq!(kubectl.ok("get deployment web --ignore-not-found").await?, "");
    let empty = kubectl.ok("get deployments -o 'jsonpath={.items}'").await?;
    assert_eq!(empty, "[]");
    Ok(())
}

pub(crate) async fn get_follows_changes(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok("create configmap first --from-literal=a=1").await?;
    let columns = "-o 'custom-columns=NAME:.metadata.name,A:.data.a'";
    let line =
        format!("get configmaps -l '!x' --field-selector=metadata.name!=kube-root-ca.crt --watch {columns}");
    let mut table = kubectl.follow(&line)?;
    let blanks = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(blanks(table.next().await?), "NAME A");
    assert_eq!(blanks(table.next().await?), "first 1");
    kubectl.ok("create configmap second --from-literal=a=2").await?;
    assert_eq!(blanks(table.next().await?), "second 2");
    kubectl
        .ok(r#"patch configmap second -p {"data":{"a":"3"}}"#)
        .await?;
    assert_eq!(blanks(table.next().await?), "second 3");
    kubectl.ok("delete configmap second --wait=false").await?;
    assert_eq!(blanks(table.next().await?), "second 3");
    let mut events = kubectl.follow("get configmap first --watch --output-watch-events")?;
    assert_eq!(blanks(events.next().await?), "EVENT NAME DATA AGE");
    assert!(events.next().await?.starts_with("ADDED      first   1"));
    kubectl.ok("label configmap first x=y").await?;
    assert!(events.next().await?.starts_with("MODIFIED   first   1"));
    // It no longer matches the selector of the first watch.
    assert_eq!(blanks(table.next().await?), "first 1");
    kubectl.ok("delete configmap first --wait=false").await?;
    assert!(events.next().await?.starts_with("DELETED    first   1"));
    Ok(())
}

pub(crate) async fn get_shows_several_kinds_and_selectors(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", &objects::both()).await?;
    kubectl.ok("create configmap other").await?;
    assert_eq!(
        kubectl.ok("get deploy,cm -l app=web -o name").await?,
        "deployment.apps/web\nconfigmap/settings\n"
    );
    assert_eq!(
        kubectl.ok("get configmap/other deploy/web -o name").await?,
        "configmap/other\ndeployment.apps/web\n"
    );
    assert_eq!(kubectl.ok("get all -o name").await?, "deployment.apps/web\n");
    assert_eq!(
        kubectl
            .ok("get cm --field-selector metadata.name=other -o name")
            .await?,
        "configmap/other\n"
    );
    assert_eq!(
        kubectl.ok("get cm -l 'app in (web,api),!tier' -o name").await?,
        "configmap/settings\n"
    );
    let everywhere = kubectl
        .ok("get cm -A -o 'jsonpath={.items[*].metadata.name}'")
        .await?;
    assert!(
        everywhere.split(' ').any(|name| name == "settings"),
        "{everywhere}"
    );
    // kubectl requests pages and shows one list.
    for n in 0..6 {
        kubectl.ok(&format!("create configmap page-{n}")).await?;
    }
    let paged = kubectl.ok("get cm --chunk-size=2 -o name").await?;
    assert_eq!(paged.matches("page-").count(), 6, "{paged}");
    Ok(())
}

pub(crate) async fn describe_shows_an_object(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", &objects::both()).await?;
    let output = kubectl.ok("describe configmap settings").await?;
    let expected = format!(
        "Name:         settings\nNamespace:    {}\nLabels:       app=web\nAnnotations:  <none>\n\nData\n====\nmode:\n----\nslow\n\nsize:\n----\n1\n\n\nBinaryData\n====\n\nEvents:  <none>\n",
        kubectl.namespace
    );
    assert_eq!(output, expected);
    let output = kubectl.ok("describe deployment web").await?;
    for line in [
        "Selector:               app=web",
        "Replicas:               2 desired | 0 updated | 0 total | 0 available | 0 unavailable",
        "StrategyType:           RollingUpdate",
        "RollingUpdateStrategy:  25% max unavailable, 25% max surge",
        "    Image:         example.com/web:1",
    ] {
        assert!(
            output.lines().any(|output| output == line),
            "no `{line}` in:\n{output}"
        );
    }
    Ok(())
}

pub(crate) async fn custom_columns_and_sorting_work(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    for (name, size) in [("a", 3), ("b", 1), ("c", 2)] {
        kubectl
            .ok(&format!("create configmap {name} --from-literal=size={size}"))
            .await?;
        kubectl.ok(&format!("label configmap {name} mine=yes")).await?;
    }
    let output = kubectl.ok("get cm -l mine --sort-by=.data.size -o name").await?;
    assert_eq!(output, "configmap/b\nconfigmap/c\nconfigmap/a\n");
    let output = kubectl.ok("get cm -l mine --sort-by=.data.size").await?;
    let names: Vec<_> = cells(&output).iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(names, ["NAME", "b", "c", "a"]);
    let output = kubectl
        .ok("get cm -l mine -o custom-columns=N:.metadata.name,S:.data.size,X:.data.none")
        .await?;
    assert_eq!(
        output,
        "N     S     X\na     3     <none>\nb     1     <none>\nc     2     <none>\n"
    );
    Ok(())
}
