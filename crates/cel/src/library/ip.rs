//! IP addresses and networks.

use std::{
    any::Any,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::no_overload;
use crate::{
    EvalError, Type, Value,
    function::{Args, FunctionSpec},
    go_format::quote,
    value::Opaque,
};

/// An IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip(pub IpAddr);

/// A network: an address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// As written, also with bits after the prefix.
    pub address: IpAddr,
    /// In bits.
    pub prefix: u8,
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

fn length(address: IpAddr) -> u64 {
    if address.is_ipv4() { 4 } else { 16 }
}

impl Opaque for Ip {
    fn type_of(&self) -> Type {
        Type::parse("IP")
    }

    fn equals(&self, other: &dyn Opaque) -> Option<bool> {
        other.as_any().downcast_ref().map(|other: &Self| other == self)
    }

    fn size(&self) -> u64 {
        length(self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Opaque for Cidr {
    fn type_of(&self) -> Type {
        Type::parse("CIDR")
    }

    fn equals(&self, other: &dyn Opaque) -> Option<bool> {
        other.as_any().downcast_ref().map(|other: &Self| other == self)
    }

    fn size(&self) -> u64 {
        u64::from(self.prefix).div_ceil(8)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "ip",
        overloads: &[("string_to_ip", "(string) -> IP"), ("cidr_ip", "CIDR.() -> IP")],
        eval: |args| match &args.values[0] {
            Value::String(text) => Ok(Value::opaque(Ip(parse_ip(text)?))),
            other => match other.downcast::<Cidr>() {
                Some(cidr) => Ok(Value::opaque(Ip(cidr.address))),
                None => no_overload("ip", args.values),
            },
        },
    },
    FunctionSpec {
        name: "isIP",
        overloads: &[("is_ip", "(string) -> bool")],
        eval: |args| match &args.values[0] {
            Value::String(text) => Ok(Value::Bool(parse_ip(text).is_ok())),
            _ => no_overload("isIP", args.values),
        },
    },
    FunctionSpec {
        name: "ip.isCanonical",
        overloads: &[("ip_is_canonical", "(string) -> bool")],
        eval: |args| match &args.values[0] {
            Value::String(text) => Ok(Value::Bool(parse_ip(text)?.to_string() == **text)),
            _ => no_overload("ip.isCanonical", args.values),
        },
    },
    FunctionSpec {
        name: "family",
        overloads: &[("ip_family", "IP.() -> int")],
        eval: |args| {
            Ok(Value::Int(if address(&args, "family")?.is_ipv4() {
                4
            } else {
                6
            }))
        },
    },
    FunctionSpec {
        name: "isUnspecified",
        overloads: &[("ip_is_unspecified", "IP.() -> bool")],
        eval: |args| Ok(Value::Bool(address(&args, "isUnspecified")?.is_unspecified())),
    },
    FunctionSpec {
        name: "isLoopback",
        overloads: &[("ip_is_loopback", "IP.() -> bool")],
        eval: |args| Ok(Value::Bool(address(&args, "isLoopback")?.is_loopback())),
    },
    FunctionSpec {
        name: "isLinkLocalMulticast",
        overloads: &[("ip_is_link_local_multicast", "IP.() -> bool")],
        eval: |args| {
            Ok(Value::Bool(is_link_local_multicast(address(
                &args,
                "isLinkLocalMulticast",
            )?)))
        },
    },
    FunctionSpec {
        name: "isLinkLocalUnicast",
        overloads: &[("ip_is_link_local_unicast", "IP.() -> bool")],
        eval: |args| {
            Ok(Value::Bool(is_link_local_unicast(address(
                &args,
                "isLinkLocalUnicast",
            )?)))
        },
    },
    FunctionSpec {
        name: "isGlobalUnicast",
        overloads: &[("ip_is_global_unicast", "IP.() -> bool")],
        eval: |args| Ok(Value::Bool(is_global_unicast(address(&args, "isGlobalUnicast")?))),
    },
    FunctionSpec {
        name: "cidr",
        overloads: &[("string_to_cidr", "(string) -> CIDR")],
        eval: |args| match &args.values[0] {
            Value::String(text) => parse_cidr(text).map(Value::opaque),
            _ => no_overload("cidr", args.values),
        },
    },
    FunctionSpec {
        name: "isCIDR",
        overloads: &[("is_cidr", "(string) -> bool")],
        eval: |args| match &args.values[0] {
            Value::String(text) => Ok(Value::Bool(parse_cidr(text).is_ok())),
            _ => no_overload("isCIDR", args.values),
        },
    },
    FunctionSpec {
        name: "containsIP",
        overloads: &[
            ("cidr_contains_ip_string", "CIDR.(string) -> bool"),
            ("cidr_contains_ip_ip", "CIDR.(IP) -> bool"),
        ],
        eval: |args| {
            let cidr = network(&args, "containsIP")?;
            let address = match (&args.values[1], args.values[1].downcast::<Ip>()) {
                // A text that is no address is no argument at all.
                (Value::String(text), _) => parse_ip(text).map_err(|_| EvalError::no_such_overload())?,
                (_, Some(ip)) => ip.0,
                _ => return no_overload("containsIP", args.values),
            };
            Ok(Value::Bool(cidr.contains(address)))
        },
    },
    FunctionSpec {
        name: "containsCIDR",
        overloads: &[
            ("cidr_contains_cidr_string", "CIDR.(string) -> bool"),
            ("cidr_contains_cidr", "CIDR.(CIDR) -> bool"),
        ],
        eval: |args| {
            let cidr = network(&args, "containsCIDR")?;
            let other = match (&args.values[1], args.values[1].downcast::<Cidr>()) {
                (Value::String(text), _) => parse_cidr(text)?,
                (_, Some(other)) => *other,
                _ => return no_overload("containsCIDR", args.values),
            };
            Ok(Value::Bool(
                cidr.prefix <= other.prefix && cidr.contains(other.address),
            ))
        },
    },
    FunctionSpec {
        name: "prefixLength",
        overloads: &[("cidr_prefix_length", "CIDR.() -> int")],
        eval: |args| Ok(Value::Int(i64::from(network(&args, "prefixLength")?.prefix))),
    },
    FunctionSpec {
        name: "masked",
        overloads: &[("cidr_masked", "CIDR.() -> CIDR")],
        eval: |args| {
            let cidr = network(&args, "masked")?;
            Ok(Value::opaque(Cidr {
                address: masked(cidr.address, cidr.prefix),
                ..cidr
            }))
        },
    },
];

fn address(args: &Args<'_, '_>, name: &str) -> std::result::Result<IpAddr, EvalError> {
    match args.values[0].downcast::<Ip>() {
        Some(ip) => Ok(ip.0),
        None => no_overload(name, args.values).map(|_| IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    }
}

fn network(args: &Args<'_, '_>, name: &str) -> std::result::Result<Cidr, EvalError> {
    match args.values[0].downcast::<Cidr>() {
        Some(cidr) => Ok(*cidr),
        None => no_overload(name, args.values).map(|_| Cidr {
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            prefix: 0,
        }),
    }
}

impl Cidr {
    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && masked(self.address, self.prefix) == masked(address, self.prefix)
    }
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or_default();
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or_default();
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_global_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(Ipv4Addr::BROADCAST));
    !is_broadcast
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}

/// Parses an address, with Go's messages.
fn parse_ip(text: &str) -> std::result::Result<IpAddr, EvalError> {
    let address = parse_address(text).map_err(|why| {
        EvalError::new(format!(
            "IP Address {0} parse error during conversion from string: {why}",
            quote(text)
        ))
    })?;
    if text.contains('%') {
        return Err(EvalError::new(format!(
            "IP address {} with zone value is not allowed",
            quote(text)
        )));
    }
    reject_mapped(address, text)?;
    Ok(address)
}

fn reject_mapped(address: IpAddr, text: &str) -> std::result::Result<(), EvalError> {
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(EvalError::new(format!(
            "IPv4-mapped IPv6 address {} is not allowed",
            quote(text)
        ))),
        _ => Ok(()),
    }
}

/// Go's `netip.ParseAddr`; the error is its message.
fn parse_address(text: &str) -> std::result::Result<IpAddr, String> {
    let failed = |why: &str| Err(format!("ParseAddr({}): {why}", quote(text)));
    let Some(separator) = text.find(['.', ':', '%']) else {
        return failed("unable to parse IP");
    };
    match text.as_bytes()[separator] {
        b'.' => match parse_v4(text) {
            Ok(address) => Ok(IpAddr::V4(address)),
            Err(why) => failed(&why),
        },
        b':' => {
            let (address, zone) = match text.split_once('%') {
                Some((address, zone)) => (address, Some(zone)),
                None => (text, None),
            };
            if zone == Some("") {
                return failed("zone must be a non-empty string");
            }
            match address.parse::<Ipv6Addr>() {
                Ok(address) => Ok(IpAddr::V6(address)),
                Err(_) => failed(&why_not_v6(address)),
            }
        }
        _ => failed("missing IPv6 address"),
    }
}

fn parse_v4(text: &str) -> std::result::Result<Ipv4Addr, String> {
    let mut octets = [0_u8; 4];
    let mut count = 0;
    let (mut value, mut digits) = (0_u32, 0);
    for (index, byte) in text.bytes().enumerate() {
        if byte.is_ascii_digit() {
            if digits == 1 && value == 0 {
                return Err("IPv4 field has octet with leading zero".to_owned());
            }
            value = value * 10 + u32::from(byte - b'0');
            digits += 1;
            if value > 255 {
                return Err("IPv4 field has value >255".to_owned());
            }
        } else if byte == b'.' {
            let is_edge = index == 0 || index == text.len() - 1 || text.as_bytes()[index - 1] == b'.';
            if is_edge {
                return Err(format!(
                    "IPv4 field must have at least one digit (at {})",
                    quote(&text[index..])
                ));
            }
            if count == 3 {
                return Err("IPv4 address too long".to_owned());
            }
            octets[count] = u8::try_from(value).unwrap_or_default();
            count += 1;
            value = 0;
            digits = 0;
        } else {
            return Err(format!("unexpected character (at {})", quote(&text[index..])));
        }
    }
    if count < 3 {
        return Err("IPv4 address too short".to_owned());
    }
    octets[3] = u8::try_from(value).unwrap_or_default();
    Ok(Ipv4Addr::from(octets))
}

/// Why Go does not parse an IPv6 address.
fn why_not_v6(text: &str) -> String {
    let mut rest = text;
    let mut fields = 0;
    let mut ellipsis = false;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = true;
        rest = after;
        if rest.is_empty() {
            return "unable to parse IP".to_owned();
        }
    }
    while fields < 8 {
        let length = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if length > 4 {
            return format!("each group must have 4 or less digits (at {})", quote(rest));
        }
        if length == 0 {
            return format!(
                "each colon-separated field must have at least one digit (at {})",
                quote(rest)
            );
        }
        if rest[length..].starts_with('.') {
            if !ellipsis && fields != 6 {
                return format!(
                    "embedded IPv4 address must replace the final 2 fields of the address (at {})",
                    quote(rest)
                );
            }
            return parse_v4(rest)
                .err()
                .unwrap_or_else(|| "unable to parse IP".to_owned());
        }
        fields += 1;
        rest = &rest[length..];
        if rest.is_empty() {
            break;
        }
        if !rest.starts_with(':') {
            return format!("unexpected character, want colon (at {})", quote(rest));
        }
        if rest.len() == 1 {
            return format!("colon must be followed by more characters (at {})", quote(rest));
        }
        rest = &rest[1..];
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis {
                return format!("multiple :: in address (at {})", quote(rest));
            }
            ellipsis = true;
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return format!("trailing garbage after address (at {})", quote(rest));
    }
    if fields < 8 && !ellipsis {
        return "address string too short".to_owned();
    }
    "the :: must expand to at least one field of zeros".to_owned()
}

/// Parses a network, with Go's messages.
fn parse_cidr(text: &str) -> std::result::Result<Cidr, EvalError> {
    const PREFIX: &str = "network address parse error during conversion from string";
    let failed = |why: &str| {
        EvalError::new(format!(
            "{PREFIX}: {PREFIX}: netip.ParsePrefix({}): {why}",
            quote(text)
        ))
    };
    let Some((address_text, bits)) = text.rsplit_once('/') else {
        return Err(failed("no '/'"));
    };
    let address = parse_address(address_text).map_err(|why| failed(&why))?;
    if address_text.contains('%') {
        return Err(failed("IPv6 zones cannot be present in a prefix"));
    }
    let is_number = bits.bytes().all(|byte| byte.is_ascii_digit()) && !bits.is_empty();
    if !is_number || (bits.len() > 1 && bits.starts_with('0')) {
        return Err(failed(&format!("bad bits after slash: {}", quote(bits))));
    }
    let limit = if address.is_ipv4() { 32 } else { 128 };
    let prefix = bits.parse::<u64>().ok().filter(|prefix| *prefix <= limit);
    let Some(prefix) = prefix.and_then(|prefix| u8::try_from(prefix).ok()) else {
        return Err(failed("prefix length out of range"));
    };
    if let Err(error) = reject_mapped(address, text) {
        return Err(EvalError::new(format!("{PREFIX}: {error}")));
    }
    Ok(Cidr { address, prefix })
}
