//! Objects that several cases use.

/// A Deployment; there is no controller that rolls it out.
pub(crate) const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: 'example.com/web:1', ports: [{containerPort: 80}]}
";

/// A ConfigMap with two keys.
pub(crate) const SETTINGS: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {mode: slow, size: '1'}
";

/// Two objects in one file.
pub(crate) fn both() -> String {
    format!("{SETTINGS}---{DEPLOYMENT}")
}
