//! Copies Secrets and ConfigMaps into the namespaces that ask for them.
