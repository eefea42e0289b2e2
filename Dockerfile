# The binary `windlass` alone, without an operating system. The release workflow builds it from static binaries; for your own:
#
#   cargo build --release --locked --target x86_64-unknown-linux-musl
#   mkdir -p image/amd64 && cp target/x86_64-unknown-linux-musl/release/windlass LICENSE crates/cli/THIRD-PARTY-NOTICES.txt image/amd64/
#   cp /etc/ssl/certs/ca-certificates.crt image/
#   docker build --file Dockerfile image
FROM scratch
ARG TARGETARCH
# Webhooks are called with TLS; the API server's certificate comes from the kubeconfig or the service account.
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY ${TARGETARCH}/LICENSE ${TARGETARCH}/THIRD-PARTY-NOTICES.txt /
COPY ${TARGETARCH}/windlass /windlass
USER 65532:65532
ENTRYPOINT ["/windlass"]
