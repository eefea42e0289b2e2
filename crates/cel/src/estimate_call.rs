//! The estimated costs of calls: cel-go's for the standard functions, Kubernetes' for its libraries.

use crate::{
    Type,
    ast::Literal,
    bounds::{CostEstimate, Size},
    estimate::{Arg, CallEstimate, Place},
};

/// The cost of a character.
const TEXT: f64 = 0.1;
/// The cost of a character of a pattern.
const PATTERN: f64 = 0.25;

const ONE: CostEstimate = CostEstimate::fixed(1);

/// The size of data at a place.
pub(crate) fn place_size(place: Place<'_>) -> Option<Size> {
    match place {
        Place::Schema(schema) => Some(Size {
            min: 0,
            max: schema.max_elements,
        }),
        Place::Key => Some(Size { min: 0, max: 0 }),
        Place::Empty | Place::Nowhere => None,
    }
}

impl Arg<'_> {
    /// The size, also if only the place knows it.
    fn known_size(&self) -> Size {
        self.size
            .or_else(|| place_size(self.place))
            .unwrap_or(Size::UNKNOWN)
    }

    /// A literal number, if it is one; negative ones are zero.
    fn literal_int(&self) -> Option<u64> {
        match self.literal {
            Some(Literal::Int(value)) => Some(u64::try_from(*value).unwrap_or_default()),
            _ => None,
        }
    }
}

fn only_cost(cost: CostEstimate) -> CallEstimate {
    CallEstimate { cost, result: None }
}

/// Functions of the standard library.
pub(crate) fn standard(overload: &str, target: Option<&Arg<'_>>, args: &[Arg<'_>]) -> CallEstimate {
    match (overload, target, args) {
        ("string_format", Some(target), _) => only_cost(target.size().scaled(TEXT)),
        ("string_to_bytes", _, [arg]) => {
            let size = arg.size();
            CallEstimate {
                cost: size.scaled(TEXT),
                // A code point is up to four bytes; this wraps, as in cel-go.
                result: Some(Size {
                    min: size.min,
                    max: size.max.wrapping_mul(4),
                }),
            }
        }
        ("bytes_to_string", _, [arg]) => {
            let size = arg.size();
            CallEstimate {
                cost: size.scaled(TEXT),
                result: Some(Size {
                    min: size.min / 4,
                    max: size.max,
                }),
            }
        }
        ("strings_quote", _, [arg]) => {
            let size = arg.size();
            CallEstimate {
                cost: size.scaled(TEXT),
                result: Some(Size {
                    min: size.min.wrapping_add(2),
                    max: size.max.wrapping_mul(2).wrapping_add(2),
                }),
            }
        }
        ("starts_with_string" | "ends_with_string", _, [arg]) => only_cost(arg.size().scaled(TEXT)),
        ("in_list", _, [_, list]) => only_cost(list.size().scaled(1.0)),
        ("matches_string", Some(target), [pattern]) => {
            let text = target.size().plus(Size::fixed(1)).scaled(TEXT);
            only_cost(text.times(pattern.size().scaled(PATTERN)))
        }
        ("contains_string", Some(target), [part]) => {
            only_cost(target.size().scaled(TEXT).times(part.size().scaled(TEXT)))
        }
        ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
            let size = left.size().plus(right.size());
            CallEstimate {
                cost: if overload == "add_list" {
                    ONE
                } else {
                    size.scaled(TEXT)
                },
                result: Some(size),
            }
        }
        (
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals",
            _,
            [left, right],
        ) => {
            let max = left.size().max.min(right.size().max);
            only_cost(CostEstimate { min: max.min(1), max }.scaled(TEXT))
        }
        _ => only_cost(ONE),
    }
}

/// Functions of extensions and of Kubernetes; `None` for others.
#[allow(clippy::too_many_lines)] // A table.
pub(crate) fn library<'s>(
    function: &str,
    overload: &str,
    target: Option<&Arg<'s>>,
    args: &[Arg<'s>],
    items: &dyn Fn(Place<'s>) -> Place<'s>,
) -> Option<CallEstimate> {
    if let Some(estimate) = extension(overload, target, args) {
        return Some(estimate);
    }
    let first = args.first();
    Some(match function {
        "check" => only_cost(CostEstimate::fixed(350_000)),
        "serviceAccount"
        | "path"
        | "group"
        | "resource"
        | "subresource"
        | "namespace"
        | "name"
        | "allowed"
        | "reason"
        | "error"
        | "errored"
        | "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "format.named"
        | "sign"
        | "asInteger"
        | "isInteger"
        | "asApproximateFloat"
        | "isGreaterThan"
        | "isLessThan"
        | "compareTo"
        | "add"
        | "sub"
        | "major"
        | "minor"
        | "patch"
        | "getScheme"
        | "getHostname"
        | "getHost"
        | "getPort"
        | "getEscapedPath"
        | "getQuery" => only_cost(ONE),
        "fieldSelector" | "labelSelector" => {
            let length = first?.known_size();
            let requirements = length.scaled(0.5).scaled(50.0);
            only_cost(
                CostEstimate::fixed(10)
                    .plus(length.scaled(TEXT))
                    .plus(requirements),
            )
        }
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            let target = target?;
            only_cost(match element(target, items) {
                Some(element) => {
                    let mut each = ONE;
                    if matches!(element.type_, Type::String | Type::Bytes) {
                        each = each.plus(element.known_size().scaled(TEXT));
                    }
                    target.known_size().times_cost(each)
                }
                None => target.known_size().scaled(TEXT),
            })
        }
        "url" | "jsonpatch.escapeKey" => same_size(first?),
        "lowerAscii" | "upperAscii" | "substring" | "trim" => same_size(target?),
        "replace" => replace(target?, args)?,
        "split" => {
            let size = target?.known_size();
            let max = match args.get(1) {
                // A negative limit wraps, as in Kubernetes.
                Some(Arg {
                    literal: Some(Literal::Int(limit)),
                    ..
                }) => limit.cast_unsigned(),
                _ => size.max,
            };
            CallEstimate {
                cost: size.scaled(2.0 * TEXT),
                result: Some(Size { min: 0, max }),
            }
        }
        "join" => join(target?, first, items),
        "find" | "findAll" => {
            let size = target?.known_size();
            let text = size.plus(Size::fixed(1)).scaled(TEXT);
            CallEstimate {
                cost: text.times(first?.known_size().scaled(PATTERN)),
                result: Some(Size {
                    min: 0,
                    max: size.max,
                }),
            }
        }
        "ip" if overload == "cidr_ip" => only_cost(ONE),
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            only_cost(first?.known_size().scaled(TEXT))
        }
        "ip.isCanonical" => only_cost(first?.known_size().scaled(2.0 * TEXT)),
        "containsIP" | "containsCIDR" => {
            let address = Size { min: 4, max: 16 };
            let mut cost = address.plus(address).scaled(TEXT);
            if function == "containsCIDR" {
                cost = cost.plus(address.scaled(TEXT)).plus(ONE);
            }
            if overload.ends_with("_string") {
                cost = cost.plus(first?.known_size().scaled(TEXT));
            }
            only_cost(cost)
        }
        "validate" => only_cost(first?.known_size().scaled(TEXT).scaled(128.0 * PATTERN)),
        "_==_" => return equality(args),
        _ => return None,
    })
}

fn same_size(arg: &Arg<'_>) -> CallEstimate {
    let size = arg.known_size();
    CallEstimate {
        cost: size.scaled(TEXT),
        result: Some(size),
    }
}

/// The elements of a list, or `None` for a string.
fn element<'s>(list: &Arg<'s>, items: &dyn Fn(Place<'s>) -> Place<'s>) -> Option<Arg<'s>> {
    let type_ = match list.type_ {
        Type::List(element) => &**element,
        Type::Map(pair) => &pair.0,
        Type::Opaque(_, parameters) => parameters.first()?,
        _ => return None,
    };
    Some(Arg {
        place: match list.place {
            Place::Empty => Place::Empty,
            place => items(place),
        },
        type_,
        literal: None,
        size: None,
    })
}

/// The extensions for lists and sets, which know their costs themselves.
fn extension(overload: &str, target: Option<&Arg<'_>>, args: &[Arg<'_>]) -> Option<CallEstimate> {
    let allocating = |factor: f64, size: Size| CallEstimate {
        cost: size.scaled(factor).plus(CostEstimate::fixed(11)),
        result: Some(size),
    };
    #[allow(clippy::cast_precision_loss)]
    let depth = |arg: Option<&Arg<'_>>| arg.map_or(1.0, |arg| arg.literal_int().unwrap_or(u64::MAX) as f64);
    Some(match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list" => {
            let factor = if overload == "list_sets_equivalent_list" {
                2.0
            } else {
                1.0
            };
            let size = args[0].known_size().times(args[1].known_size());
            only_cost(size.scaled(factor).plus(ONE))
        }
        "list_slice" => {
            let size = target?.known_size();
            let start = args[0].literal_int().unwrap_or(0);
            let end = args[1].literal_int().unwrap_or(size.max);
            allocating(1.0, Size::fixed(end.wrapping_sub(start)))
        }
        "lists_range" => allocating(1.0, Size::fixed(args[0].literal_int().unwrap_or(u64::MAX))),
        "list_reverse" => allocating(1.0, target?.known_size()),
        "list_flatten" | "list_flatten_int" => allocating(depth(args.first()), target?.known_size()),
        "list_distinct" => {
            let size = target?.known_size();
            allocating(2.0, size.times(size))
        }
        _ if overload.ends_with("_sort") || overload.ends_with("_sortByAssociatedKeys") => {
            let is_text = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
            let keys = if overload.ends_with("_sort") {
                target?
            } else {
                args.first()?
            };
            let size = keys.known_size();
            allocating(if is_text { 2.0 + TEXT } else { 2.0 }, size.times(size))
        }
        _ => return None,
    })
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn replace(target: &Arg<'_>, args: &[Arg<'_>]) -> Option<CallEstimate> {
    let (size, old, new) = (
        target.known_size(),
        args.first()?.known_size(),
        args.get(1)?.known_size(),
    );
    let times = |size: u64, length: u64| (size as f64 / length as f64).ceil() as u64;
    // The longest result: as many replacements as possible by the longest text.
    let (max_count, max_kept) = if old.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if new.max <= old.min {
        (0, size.max)
    } else {
        (times(size.max, old.min), 0)
    };
    // The shortest.
    let (min_count, min_kept) = if old.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if old.max <= new.min {
        (0, size.min)
    } else {
        (times(size.min, old.max), 0)
    };
    let count = Size {
        min: min_count,
        max: max_count,
    };
    let kept = Size {
        min: min_kept,
        max: max_kept,
    };
    Some(CallEstimate {
        cost: size.scaled(2.0 * TEXT),
        result: Some(count.times(new).plus(kept)),
    })
}

fn join<'s>(
    target: &Arg<'s>,
    separator: Option<&Arg<'s>>,
    items: &dyn Fn(Place<'s>) -> Place<'s>,
) -> CallEstimate {
    let count = target.known_size();
    let mut size = match element(target, items) {
        Some(element) => count.times(element.known_size()),
        None => Size { min: 0, max: 0 },
    };
    if let Some(separator) = separator {
        let separators = Size {
            min: count.min.saturating_sub(1),
            max: count.max.saturating_sub(1),
        };
        size = size.plus(separator.known_size().times(separators));
    }
    CallEstimate {
        cost: size.scaled(TEXT),
        result: Some(size),
    }
}

/// `==` of values of libraries.
fn equality(args: &[Arg<'_>]) -> Option<CallEstimate> {
    let [left, right] = args else { return None };
    if left.type_ != right.type_ {
        return None;
    }
    let name = match left.type_ {
        Type::Opaque(name, _) | Type::Object(name) => &**name,
        _ => return None,
    };
    let max = match name {
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => return Some(only_cost(ONE)),
        name if name.starts_with("kubernetes.authorization.") => return Some(only_cost(ONE)),
        "kubernetes.NamedFormat" => 64,
        "kubernetes.URL" => right.size.map_or(1, |size| size.max),
        _ => return None,
    };
    Some(only_cost(CostEstimate { min: 1, max }.scaled(TEXT)))
}
