//! Static bearer tokens of an API server.

/// A bearer token, and the user and groups that it authenticates.
#[derive(Clone)]
pub(crate) struct StaticToken {
    pub(crate) token: String,
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
}

impl StaticToken {
    pub(crate) fn new<G>(token: &str, user: &str, groups: G) -> Self
    where
        G: IntoIterator,
        G::Item: Into<String>,
    {
        Self {
            token: token.to_owned(),
            user: user.to_owned(),
            groups: groups.into_iter().map(Into::into).collect(),
        }
    }

    /// Returns the line of a kube-apiserver token file: token, user, UID, groups.
    pub(crate) fn csv_line(&self) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let groups = quoted(&self.groups.join(","));
        format!("{},{},,{groups}\n", quoted(&self.token), quoted(&self.user))
    }
}

impl std::fmt::Debug for StaticToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StaticToken")
            .field("user", &self.user)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}
