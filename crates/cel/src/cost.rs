//! The cost of a call at run time, in cel-go's units.

use crate::{EvalError, Value, budget::Work, library::NamedFormat};

/// How the cost of a call is computed from its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostRule {
    Fixed(u64),
    /// A tenth of the size of the first argument.
    Traverse,
    /// Twice that.
    TraverseTwice,
    /// A tenth of twice the size of the result.
    Join,
    /// The number of elements of the second argument.
    In,
    /// A tenth of the smaller size.
    Compare,
    /// A tenth of both sizes.
    Concat,
    Contains,
    /// A tenth of the text, times a quarter of the pattern.
    Regex,
    /// All data in the first argument.
    Tree,
    /// `containsIP`; with the text of the other if true.
    ContainsIp(bool),
    ContainsCidr(bool),
    Selector,
    Validate,
    /// The product of the sizes, times a factor.
    Sets(u64),
    /// The size of the result.
    NewList,
    Flatten,
    /// All pairs of elements of this argument.
    Pairs(usize),
}

/// Of an authorization check: two fit into an expression's limit.
const CHECK: u64 = 350_000;

impl CostRule {
    /// Finds the rule; `overload` is empty if several fit.
    pub(crate) fn new(function: &str, overload: &str, args: usize) -> Self {
        match overload {
            "list_sets_contains_list" | "list_sets_intersects_list" => return Self::Sets(1),
            "list_sets_equivalent_list" => return Self::Sets(2),
            "list_slice" | "lists_range" | "list_reverse" => return Self::NewList,
            "list_flatten" | "list_flatten_int" => return Self::Flatten,
            "list_distinct" => return Self::Pairs(0),
            _ => {}
        }
        match function {
            "sort" if !overload.is_empty() => Self::Pairs(0),
            "@sortByAssociatedKeys" if !overload.is_empty() => Self::Pairs(1),
            "check" => Self::Fixed(CHECK),
            "fieldSelector" | "labelSelector" => Self::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Self::Tree,
            "ip" if overload == "cidr_ip" => Self::Fixed(1),
            "ip"
            | "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => Self::Traverse,
            "replace" | "split" | "ip.isCanonical" => Self::TraverseTwice,
            "join" => Self::Join,
            "find" | "findAll" => Self::Regex,
            "containsIP" => Self::ContainsIp(overload == "cidr_contains_ip_string"),
            "containsCIDR" => Self::ContainsCidr(overload == "cidr_contains_cidr_string"),
            "validate" if args == 2 => Self::Validate,
            _ => Self::of_overload(overload),
        }
    }

    fn of_overload(overload: &str) -> Self {
        match overload {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format" => Self::Traverse,
            "in_list" => Self::In,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes" => Self::Compare,
            "add_string" | "add_bytes" => Self::Concat,
            "matches_string" => Self::Regex,
            "contains_string" => Self::Contains,
            _ => Self::Fixed(1),
        }
    }

    /// Whether the cost is known only after the call.
    pub(crate) const fn needs_arguments_after(self) -> bool {
        matches!(self, Self::Join | Self::NewList)
    }

    /// Computes the cost. To count the code points of a long text, or to walk a large value, is work of its own.
    pub(crate) fn of(
        self,
        args: &[Value<'_>],
        result: Option<&Value<'_>>,
        work: &mut Work,
    ) -> Result<u64, EvalError> {
        let size = |index: usize, work: &mut Work| args.get(index).map_or(Ok(1), |value| size(value, work));
        let result_size = |work: &mut Work| result.map_or(Ok(1), |value| self::size(value, work));
        Ok(match self {
            Self::Fixed(cost) => cost,
            Self::Traverse => size(0, work)?.div_ceil(10),
            Self::TraverseTwice => (size(0, work)? * 2).div_ceil(10),
            Self::Join => (result_size(work)? * 2).div_ceil(10),
            Self::In => size(1, work)?,
            Self::Compare => size(0, work)?.min(size(1, work)?).div_ceil(10),
            Self::Concat => (size(0, work)? + size(1, work)?).div_ceil(10),
            Self::Contains => size(0, work)?
                .div_ceil(10)
                .saturating_mul(size(1, work)?.div_ceil(10)),
            Self::Regex => (size(0, work)? + 1)
                .div_ceil(10)
                .saturating_mul(size(1, work)?.div_ceil(4)),
            Self::Tree => match args.first() {
                Some(value) => tree_size(value, work)?,
                None => 0,
            },
            Self::ContainsIp(is_text) => {
                (size(0, work)? * 2).div_ceil(10) + if is_text { size(1, work)?.div_ceil(10) } else { 0 }
            }
            Self::ContainsCidr(is_text) => {
                let address = size(0, work)?;
                (address * 2).div_ceil(10)
                    + address.div_ceil(10)
                    + 1
                    + if is_text { size(1, work)?.div_ceil(10) } else { 0 }
            }
            Self::Selector => {
                // A list, the text, and a struct and a list for each two characters.
                let length = size(1, work)?;
                10 + length.div_ceil(10) + length.div_ceil(2) * 50
            }
            Self::Validate => {
                let pattern = args[0]
                    .downcast::<NamedFormat>()
                    .map_or(0, |format| format.regex_size);
                (size(1, work)? + 1).div_ceil(10) * pattern.div_ceil(4)
            }
            Self::Sets(factor) => size(0, work)?
                .saturating_mul(size(1, work)?)
                .saturating_mul(factor)
                .saturating_add(1),
            Self::NewList => result_size(work)? + 11,
            Self::Flatten => {
                const LIST: u64 = 11;
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) => *depth,
                    _ => 1,
                };
                let visited = size(0, work)?.saturating_mul(depth.unsigned_abs());
                if depth < 0 {
                    // The call fails; cel-go's cost of it wraps around.
                    LIST.wrapping_sub(visited)
                } else {
                    LIST.saturating_add(visited)
                }
            }
            Self::Pairs(index) => pairs(args.get(index)),
        })
    }
}

/// Twice the square of the size, and a tenth more for text.
fn pairs(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else {
        return 11;
    };
    let squares = (list.len() as u64).saturating_mul(list.len() as u64);
    let extra = match list.get(0) {
        Some(Ok(Value::String(_) | Value::Bytes(_))) => squares / 10,
        _ => 0,
    };
    squares.saturating_mul(2).saturating_add(extra).saturating_add(11)
}

/// The size of a value.
pub(crate) fn size(value: &Value<'_>, work: &mut Work) -> Result<u64, EvalError> {
    if let Value::String(text) = value {
        work.read(text.len())?;
    }
    Ok(value.size())
}

/// The cost to visit all data in a value.
fn tree_size(value: &Value<'_>, work: &mut Work) -> Result<u64, EvalError> {
    work.spend(1)?;
    let part = |part: Result<Value<'_>, EvalError>, work: &mut Work| match part {
        Ok(value) => tree_size(&value, work),
        Err(_) => Ok(1),
    };
    let mut total = 0_u64;
    match value {
        Value::String(text) => total = text.len() as u64 / 10,
        Value::Bytes(bytes) => {
            work.read(bytes.len())?;
            total = bytes.len() as u64 / 10;
        }
        Value::List(list) => {
            for value in list {
                total = total.saturating_add(part(value, work)?);
            }
        }
        Value::Map(map) => {
            for key in map.keys() {
                total = total.saturating_add(tree_size(&key, work)?);
                let value = map.look_up(&key, work).unwrap_or(Ok(Value::Null));
                total = total.saturating_add(part(value, work)?);
            }
        }
        _ => total = 1,
    }
    Ok(total)
}
