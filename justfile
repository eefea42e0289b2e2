# Shortcuts for the steps of CI; `.ci/run` defines each step.

# Runs all checks, as CI does.
default: ci

# Runs formatting, lints, tests, docs and the suites on a real control plane.
ci:
    bash .ci/run

# Formats the code.
fmt:
    cargo fmt --all

# Checks formatting and lints, warnings denied.
lint:
    bash .ci/run format lint

# Runs all tests.
test:
    cargo test --workspace

# Builds the documentation, warnings denied.
docs:
    bash .ci/run docs

# Runs the behaviour suites on a real kube-apiserver and etcd, and builds these first if necessary.
real:
    bash .ci/run real

# Builds the real control plane into the user's cache and prints its folder.
control-plane:
    hack/control-plane/build

# Runs controller-runtime's own envtest suites on the embedded server: `just envtest`, `just envtest --real client`.
envtest *arguments:
    hack/envtest/run {{ arguments }}

# Checks licences, sources, bans and advisories of the dependencies (needs cargo-deny, and network access for its advisory database).
deny:
    cargo deny check

# Regenerates the data about built-in kinds from a running API server (kubeconfig as argument).
registry kubeconfig:
    hack/registry/reduce --kubeconfig {{ kubeconfig }}

# Benchmarks Windlass against other implementations in one run: `just bench`, `just bench queue cache`, `just bench --json run.json --svg run.svg`.
bench *arguments:
    cargo run --release -p windlass-bench -- {{ arguments }}

# Measures how fast an embedded cluster of a thousand nodes starts, and its cost when idle.
bench-cluster:
    cargo run --release -p windlass-bench --bin windlass-bench-cluster

# Runs mixed load on the embedded server, half an hour without and half an hour with a hostile client: `just soak`, `just soak --minutes 5`.
soak *arguments:
    cargo run --release -p windlass-bench --bin windlass-soak -- {{ arguments }}

# Fuzzes everything that parses untrusted bytes, each target for some minutes: `just fuzz`, `just fuzz yaml 30`. See fuzz/README.md.
fuzz target="" minutes="2":
    cargo run --profile fuzz -p windlass-fuzz -- {{ target }} --minutes {{ minutes }}

# Replays the conformance scenarios that the embedded API server does not pass yet.
pending:
    cargo run -p windlass-conformance -- replay --pending

# Runs the demo on the embedded cluster.
demo:
    cargo run --release -- demo
