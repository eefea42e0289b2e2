//! Checks the `Host` header of requests to a loopback listener.
//!
//! A web page in a browser on the same machine can make its own name resolve to 127.0.0.1 (DNS rebinding) and could then read
//! what is served there. The browser still sends that name as `Host`, so such requests can be rejected.

use std::net::IpAddr;

use http::{HeaderMap, header, uri::Authority};

/// Whether every `Host` of a request names this machine: `localhost`, a subdomain of it, or a loopback address. A request
/// without `Host` is accepted, because browsers always send one.
pub(super) fn is_local(headers: &HeaderMap) -> bool {
    headers.get_all(header::HOST).iter().all(|host| {
        let authority = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        authority.is_some_and(|authority| is_local_name(authority.host()))
    })
}

fn is_local_name(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if let Ok(address) = bare.unwrap_or(host).parse() {
        return is_loopback(address);
    }
    // Resolvers must resolve these to loopback (RFC 6761).
    let name = host.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Includes IPv4-mapped IPv6 addresses.
pub(super) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_local_only_if_it_names_this_machine() {
        let with = |hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, host.parse().expect("valid header value"));
            }
            is_local(&headers)
        };
        for hosts in [
            &[][..],
            &["localhost"],
            &["LOCALHOST:8080"],
            &["foo.localhost:8080"],
            &["127.0.0.1"],
            &["127.8.9.1:80"],
            &["[::1]:8080"],
            &["[::ffff:127.0.0.1]:8080"],
        ] {
            assert!(with(hosts), "{hosts:?}");
        }
        for hosts in [
            &["rebind.example"][..],
            &["rebind.example:8080"],
            &["localhost.rebind.example"],
            &["127.0.0.1.rebind.example"],
            &["notlocalhost"],
            &["10.0.0.1:8080"],
            &["0.0.0.0:8080"],
            &["localhost", "rebind.example"],
            &[""],
            &["a b"],
        ] {
            assert!(!with(hosts), "{hosts:?}");
        }
    }
}
