//! An Icecream owns a Deployment, and its status tells where its pods are.
