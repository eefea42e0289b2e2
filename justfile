# What CI does, step by step; `.ci/run` is the one place that says how.

# All checks, as CI runs them.
default: ci

# Formatting, lints, tests, docs and the suites on a real control plane.
ci:
    bash .ci/run

# Formats the code.
fmt:
    cargo fmt --all

# Formatting and lints, warnings denied.
lint:
    bash .ci/run format lint

# The README's command.
test:
    cargo test --workspace

# The documentation, warnings denied.
docs:
    bash .ci/run docs

# The behaviour suites on a real kube-apiserver and etcd, built from their modules if need be.
real:
    bash .ci/run real

# Builds the real control plane into the user's cache and prints where.
control-plane:
    hack/control-plane/build

# controller-runtime's own envtest suites on the embedded server: `just envtest`, `just envtest --real client`.
envtest *arguments:
    hack/envtest/run {{ arguments }}

# Licences, sources, bans and advisories of the dependencies (needs cargo-deny, and the network for its advisory database).
deny:
    cargo deny check

# Reads the facts about the built-in kinds anew from a running API server (kubeconfig as argument).
registry kubeconfig:
    hack/registry/reduce --kubeconfig {{ kubeconfig }}

# Compares with the rivals in one run: `just bench`, `just bench queue cache`, `just bench --json run.json --svg run.svg`.
bench *arguments:
    cargo run --release -p windlass-bench -- {{ arguments }}

# How fast an embedded cluster of a thousand nodes comes alive, and what it costs at rest.
bench-cluster:
    cargo run --release -p windlass-bench --bin windlass-bench-cluster

# Half an hour of mixed load on the embedded server, without and then with a hostile client: `just soak`, `just soak --minutes 5`.
soak *arguments:
    cargo run --release -p windlass-bench --bin windlass-soak -- {{ arguments }}

# Fuzzes everything that reads bytes from outside, each target for some minutes: `just fuzz`, `just fuzz yaml 30`. See fuzz/README.md.
fuzz target="" minutes="2":
    cargo run --profile fuzz -p windlass-fuzz -- {{ target }} --minutes {{ minutes }}

# Where the embedded API server still differs from the recorded real one.
ahead:
    cargo run -p windlass-conformance -- replay --ahead

# The demo on the embedded cluster.
demo:
    cargo run --release -- demo
