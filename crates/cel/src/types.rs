//! Types of expressions, as the checker sees them.

use std::{fmt, sync::Arc};

/// The type of an expression, a variable or an argument.
///
/// `Display` writes cel-go's form, as in its error messages:
///
/// ```
/// use windlass_cel::Type;
///
/// let type_ = Type::map(Type::String, Type::list(Type::Int));
/// assert_eq!(type_.to_string(), "map(string, list(int))");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Type {
    /// Checked at run time only.
    Dyn,
    /// The type of an expression with an error; compatible with everything, so that one mistake is reported once.
    Error,
    /// The type of `null`.
    Null,
    /// `bool`
    Bool,
    /// 64-bit signed integer.
    Int,
    /// 64-bit unsigned integer.
    Uint,
    /// 64-bit float.
    Double,
    /// UTF-8 text.
    String,
    /// Bytes.
    Bytes,
    /// A length of time, in nanoseconds.
    Duration,
    /// A point in time.
    Timestamp,
    /// A list of elements of one type.
    List(Arc<Type>),
    /// A map; the pair is the type of keys and the type of values.
    Map(Arc<(Type, Type)>),
    /// The type of a type, as of `type(1)`.
    Type(Option<Arc<Type>>),
    /// An object with fields. The environment knows them by this name.
    Object(Arc<str>),
    /// A type without fields that only functions understand, such as `net.IP` or `optional_type(int)`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// A type parameter of a declaration, as `A` in `list(A)`.
    Param(Arc<str>),
    /// A type that the checker has yet to find out.
    Var(u32),
}

/// The name of the type of optional values.
pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    /// Returns the type of a list.
    pub fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    /// Returns the type of a map.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// Returns the type of an optional value.
    pub fn optional(value: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), Arc::new([value]))
    }

    /// Returns the type of an object whose fields the environment knows by this name.
    pub fn object(name: impl Into<Arc<str>>) -> Self {
        Self::Object(name.into())
    }

    /// Returns the type of a type.
    pub fn of_type(type_: Self) -> Self {
        Self::Type(Some(Arc::new(type_)))
    }

    /// The type of the value, if this is an optional type.
    pub(crate) fn as_optional(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, parameters) if &**name == OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    pub(crate) const fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }

    /// The name at run time, as `type(x)` shows it.
    pub fn name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Error => "!error!",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Object(name) | Self::Opaque(name, _) | Self::Param(name) => name,
            Self::Var(_) => "_var",
        }
    }

    /// Parses the notation of the function tables: `list(int)`, `optional(V)`, `Quantity`.
    ///
    /// A single capital letter is a type parameter. The tables are part of the crate, so an unknown name is a bug.
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.trim();
        if let Some((name, rest)) = text.split_once('(') {
            let inner = rest.strip_suffix(')').expect("a closed parenthesis");
            return match name {
                "list" => Self::list(Self::parse(inner)),
                "map" => {
                    let (key, value) = inner.split_once(',').expect("a key and a value");
                    Self::map(Self::parse(key), Self::parse(value))
                }
                "optional" => Self::optional(Self::parse(inner)),
                "type" => Self::of_type(Self::parse(inner)),
                _ => unreachable!("unknown type {text}"),
            };
        }
        match text {
            "dyn" => Self::Dyn,
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "duration" => Self::Duration,
            "timestamp" => Self::Timestamp,
            "IP" => Self::Opaque("net.IP".into(), Arc::new([])),
            "CIDR" => Self::Opaque("net.CIDR".into(), Arc::new([])),
            "Quantity" | "URL" | "NamedFormat" | "Semver" => Self::object(format!("kubernetes.{text}")),
            "Authorizer" | "PathCheck" | "GroupCheck" | "ResourceCheck" | "Decision" => {
                Self::object(format!("kubernetes.authorization.{text}"))
            }
            _ => {
                assert!(text.len() == 1, "unknown type {text}");
                Self::Param(text.into())
            }
        }
    }

    /// Calls `visit` with each type parameter in the type.
    pub(crate) fn parameters(&self, visit: &mut impl FnMut(&Arc<str>)) {
        match self {
            Self::Param(name) => visit(name),
            Self::List(inner) | Self::Type(Some(inner)) => inner.parameters(visit),
            Self::Map(pair) => {
                pair.0.parameters(visit);
                pair.1.parameters(visit);
            }
            Self::Opaque(_, inner) => inner.iter().for_each(|type_| type_.parameters(visit)),
            _ => {}
        }
    }

    /// Returns the type with each type parameter replaced by what `replace` returns for it.
    pub(crate) fn instantiate(&self, replace: &impl Fn(&str) -> Self) -> Self {
        match self {
            Self::Param(name) => replace(name),
            Self::List(inner) => Self::list(inner.instantiate(replace)),
            Self::Map(pair) => Self::map(pair.0.instantiate(replace), pair.1.instantiate(replace)),
            Self::Type(Some(inner)) => Self::of_type(inner.instantiate(replace)),
            Self::Opaque(name, inner) if !inner.is_empty() => Self::Opaque(
                Arc::clone(name),
                inner.iter().map(|type_| type_.instantiate(replace)).collect(),
            ),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(pair) => write!(f, "map({}, {})", pair.0, pair.1),
            Self::Type(Some(inner)) => write!(f, "type({inner})"),
            Self::Opaque(name, parameters) if !parameters.is_empty() => {
                write!(f, "{name}({})", Types(parameters))
            }
            Self::Var(number) => write!(f, "_var{number}"),
            other => f.write_str(other.name()),
        }
    }
}

/// Types, separated by commas.
pub(crate) struct Types<'a>(pub(crate) &'a [Type]);

impl fmt::Display for Types<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, type_) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{type_}")?;
        }
        Ok(())
    }
}
