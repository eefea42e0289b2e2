//! Which node this process runs on.

use std::ffi::OsString;

/// The variable that the pod's manifest sets.
const VARIABLE: &str = "NODE_NAME";

/// The node's name is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeNameError {
    /// The pod's manifest does not set it.
    #[error(
        "NODE_NAME is not set, so this process does not know its node; in the pod's manifest, add to the container:\n\
         env:\n\
         - name: NODE_NAME\n\
         \x20 valueFrom:\n\
         \x20   fieldRef:\n\
         \x20     fieldPath: spec.nodeName"
    )]
    Missing,
    /// No node has such a name.
    #[error("NODE_NAME is {0:?}, which is no node's name: set it from `spec.nodeName` by a fieldRef")]
    Invalid(OsString),
}

/// The name of the node that this process runs on, from the downward API: the pod's manifest puts `spec.nodeName` into
/// the variable `NODE_NAME`. Without it, the error has the lines to add.
///
/// For agents that run on every node and care for their own.
pub fn node_name() -> Result<String, NodeNameError> {
    read(std::env::var_os(VARIABLE))
}

fn read(value: Option<OsString>) -> Result<String, NodeNameError> {
    let value = value
        .filter(|value| !value.is_empty())
        .ok_or(NodeNameError::Missing)?;
    let name = value.into_string().map_err(NodeNameError::Invalid)?;
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_edge = |byte: Option<&u8>| byte.is_some_and(|byte| !b"-.".contains(byte));
    let bytes = name.as_bytes();
    // A name that is no DNS subdomain, such as `$(NODE_NAME)`, would be asked for in vain.
    if bytes.len() <= 253
        && bytes.iter().copied().all(is_inner)
        && is_edge(bytes.first())
        && is_edge(bytes.last())
    {
        Ok(name)
    } else {
        Err(NodeNameError::Invalid(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_node_is_what_the_manifest_sets() {
        assert_eq!(
            read(Some("node-1.example.com".into())).as_deref(),
            Ok("node-1.example.com")
        );
        for nothing in [None, Some("".into())] {
            let error = read(nothing).expect_err("it is missing");
            let (_, manifest) = error
                .to_string()
                .split_once("container:\n")
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
                .expect("lines to add");
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
