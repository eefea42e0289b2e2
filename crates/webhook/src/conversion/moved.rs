//! Macros for conversions in which fields only have other names or places.

/// Implements `From` in both directions between two structs whose fields correspond one to one.
///
/// Each field is written once: `name` if it has the same name in both, `old => new` if it was renamed, and `each name` or
/// `each old => new` for an `Option` whose content is converted, or a `Vec` whose items are. A field is converted with `From`, which
/// does nothing if the types are equal. A field that is missing here does not compile.
///
/// ```
/// use windlass_webhook::moved_fields;
///
/// struct OldTopping { label: String }
/// struct Topping { name: String }
/// moved_fields!(OldTopping, Topping { label => name });
///
/// struct OldCone { balls: u32, flavor: String, extras: Vec<OldTopping> }
/// struct Cone { scoops: u64, flavor: String, toppings: Vec<Topping> }
/// moved_fields!(OldCone, Cone { balls => scoops via (u64::from, |scoops| u32::try_from(scoops).unwrap_or(u32::MAX)), flavor, each extras => toppings });
///
/// let cone = Cone::from(OldCone { balls: 2, flavor: "mango".into(), extras: vec![OldTopping { label: "nuts".into() }] });
/// assert_eq!((cone.scoops, &*cone.toppings[0].name), (2, "nuts"));
/// let old = OldCone::from(cone);
/// assert_eq!((old.balls, &*old.flavor, &*old.extras[0].label), (2, "mango", "nuts"));
/// ```
#[macro_export]
macro_rules! moved_fields {
    ($old:ty, $new:ty { $($fields:tt)* }) => {
        $crate::moved_fields!(@parse ($old) ($new) [] [] $($fields)*);
    };
    (@parse ($old:ty) ($new:ty) [$($to_new:tt)*] [$($to_old:tt)*]) => {
        impl ::core::convert::From<$old> for $new {
            fn from(value: $old) -> Self {
                $crate::moved_fields!(@build value $($to_new)*)
            }
        }
        impl ::core::convert::From<$new> for $old {
            fn from(value: $new) -> Self {
                $crate::moved_fields!(@build value $($to_old)*)
            }
        }
    };
    (@parse $old:tt $new:tt [$($n:tt)*] [$($o:tt)*] each $from:ident => $to:ident $(, $($rest:tt)*)?) => {
        $crate::moved_fields!(@parse $old $new [$($n)* ($to $from each)] [$($o)* ($from $to each)] $($($rest)*)?);
    };
    (@parse $old:tt $new:tt [$($n:tt)*] [$($o:tt)*] each $name:ident $(, $($rest:tt)*)?) => {
        $crate::moved_fields!(@parse $old $new [$($n)* ($name $name each)] [$($o)* ($name $name each)] $($($rest)*)?);
    };
    (@parse $old:tt $new:tt [$($n:tt)*] [$($o:tt)*] $from:ident => $to:ident via ($forth:expr, $back:expr) $(, $($rest:tt)*)?) => {
        $crate::moved_fields!(@parse $old $new [$($n)* ($to $from ($forth))] [$($o)* ($from $to ($back))] $($($rest)*)?);
    };
    (@parse $old:tt $new:tt [$($n:tt)*] [$($o:tt)*] $from:ident => $to:ident $(, $($rest:tt)*)?) => {
        $crate::moved_fields!(@parse $old $new [$($n)* ($to $from into)] [$($o)* ($from $to into)] $($($rest)*)?);
    };
    (@parse $old:tt $new:tt [$($n:tt)*] [$($o:tt)*] $name:ident $(, $($rest:tt)*)?) => {
        $crate::moved_fields!(@parse $old $new [$($n)* ($name $name into)] [$($o)* ($name $name into)] $($($rest)*)?);
    };
    (@build $value:ident $(($to:ident $from:ident $how:tt))*) => {
        Self { $($to: $crate::moved_fields!(@convert $how $value.$from)),* }
    };
    (@convert into $value:expr) => { ::core::convert::Into::into($value) };
    (@convert each $value:expr) => { $crate::ConvertEach::convert_each($value) };
    (@convert ($with:expr) $value:expr) => { ($with)($value) };
}

/// Converts what an `Option` or a `Vec` contains; for [`moved_fields!`].
pub trait ConvertEach<T> {
    /// The same container of converted items.
    fn convert_each(self) -> T;
}

impl<T: Into<B>, B> ConvertEach<Option<B>> for Option<T> {
    fn convert_each(self) -> Option<B> {
        self.map(Into::into)
    }
}

impl<T: Into<B>, B> ConvertEach<Vec<B>> for Vec<T> {
    fn convert_each(self) -> Vec<B> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<K: Ord, V: Into<B>, B> ConvertEach<std::collections::BTreeMap<K, B>>
    for std::collections::BTreeMap<K, V>
{
    fn convert_each(self) -> std::collections::BTreeMap<K, B> {
        self.into_iter().map(|(key, value)| (key, value.into())).collect()
    }
}

/// Implements `From` in both directions between two versions of a kind, from conversions of their specs and, if it has one,
/// their statuses. The metadata is taken over.
///
/// `convert_spec!(v1::Cone, v2::Cone)`, or `convert_spec!(v1::Cone, v2::Cone, status)` for kinds with a status, which is an
/// `Option` in the types that kube derives.
#[macro_export]
macro_rules! convert_spec {
    ($old:ty, $new:ty) => {
        $crate::convert_spec!(@one $old, $new,);
        $crate::convert_spec!(@one $new, $old,);
    };
    ($old:ty, $new:ty, status) => {
        $crate::convert_spec!(@one $old, $new, status);
        $crate::convert_spec!(@one $new, $old, status);
    };
    (@one $from:ty, $to:ty, $($status:ident)?) => {
        impl ::core::convert::From<$from> for $to {
            fn from(object: $from) -> Self {
                Self {
                    metadata: object.metadata,
                    spec: ::core::convert::Into::into(object.spec),
                    $($status: $crate::ConvertEach::convert_each(object.$status),)?
                }
            }
        }
    };
}
