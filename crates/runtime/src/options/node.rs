//! Name of the node that this process runs on.

use std::ffi::OsString;

use windlass_api::naming::is_dns_subdomain;

/// Environment variable, set in the pod's manifest.
const NODE_NAME_VARIABLE: &str = "NODE_NAME";

/// Why the node's name is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeNameError {
    /// `NODE_NAME` is not set.
    #[error(
        "NODE_NAME is not set, so the node's name is unknown; in the pod's manifest, add to the container:\n\
         env:\n\
         - name: NODE_NAME\n\
         \x20 valueFrom:\n\
         \x20   fieldRef:\n\
         \x20     fieldPath: spec.nodeName"
    )]
    Missing,
    /// `NODE_NAME` is not a valid node name.
    #[error("NODE_NAME {0:?} is not a valid node name: set it from `spec.nodeName` with a fieldRef")]
    Invalid(OsString),
}

/// Returns the name of the node that this process runs on, from the downward API: the pod's manifest sets the variable
/// `NODE_NAME` from `spec.nodeName`. If it is missing, the error contains the lines to add.
///
/// For node agents.
pub fn node_name() -> Result<String, NodeNameError> {
    read(std::env::var_os(NODE_NAME_VARIABLE))
}

fn read(value: Option<OsString>) -> Result<String, NodeNameError> {
    let value = value
        .filter(|value| !value.is_empty())
        .ok_or(NodeNameError::Missing)?;
    let name = value.into_string().map_err(NodeNameError::Invalid)?;
    // Rejects names that are not DNS subdomains, such as an unexpanded `$(NODE_NAME)`.
    if is_dns_subdomain(&name) {
        Ok(name)
    } else {
        Err(NodeNameError::Invalid(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_name_is_read_from_the_environment() {
        assert_eq!(
            read(Some("node-1.example.com".into())).as_deref(),
            Ok("node-1.example.com")
        );
        for nothing in [None, Some("".into())] {
            let error = read(nothing).expect_err("the name is missing");
            let (_, manifest) = error
                .to_string()
                .split_once("container:\n")
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
                .expect("the error has the lines to add");
            let expected =
                "env:\n- name: NODE_NAME\n  valueFrom:\n    fieldRef:\n      fieldPath: spec.nodeName";
            assert_eq!(manifest, expected);
        }
        for wrong in ["$(NODE_NAME)", "Node", "a/b", "-a", "a.", " a"] {
            assert_eq!(
                read(Some(wrong.into())),
                Err(NodeNameError::Invalid(wrong.into()))
            );
        }
    }
}
