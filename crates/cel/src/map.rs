//! Maps and objects.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map as JsonMap, Value as Json};

use crate::{
    EvalError, Value,
    budget::{ITEM_BYTES, Work},
    equality,
    schema::{ObjectSchema, Schema},
};

/// A map, or an object with fields.
#[derive(Clone, Debug)]
pub struct Map<'a>(Repr<'a>);

#[derive(Clone)]
enum Repr<'a> {
    Json {
        fields: &'a JsonMap<String, Json>,
        values: Option<&'a Schema>,
    },
    Object {
        fields: &'a JsonMap<String, Json>,
        schema: &'a ObjectSchema,
    },
    Entries(Arc<Entries<'a>>),
    Host(&'a (dyn HostObject + 'a)),
}

impl std::fmt::Debug for Repr<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Json { fields, .. } | Self::Object { fields, .. } => {
                f.debug_tuple("Json").field(fields).finish()
            }
            Self::Entries(entries) => f
                .debug_map()
                .entries(entries.pairs.iter().map(|(k, v)| (k, v)))
                .finish(),
            Self::Host(_) => f.write_str("Host"),
        }
    }
}

/// An object of the host, whose fields it computes on demand, such as the `variables` of an admission policy.
pub trait HostObject: Sync {
    /// Returns a field, or `None` if it is absent.
    fn field(&self, name: &str) -> Option<Result<Value<'_>, EvalError>>;
    /// The names of the fields.
    fn names(&self) -> Vec<&str>;
}

/// Entries in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries<'a> {
    /// The type of an object that an expression constructed.
    type_name: Option<Arc<str>>,
    pairs: Vec<(Value<'a>, Value<'a>)>,
    /// Places of the keys, if there are many.
    index: HashMap<Key, usize, foldhash::fast::FixedState>,
    /// Places of keys without an index, such as lists.
    unindexed: Vec<usize>,
}

/// Up to this number of entries they are searched one by one.
const FEW: usize = 8;

/// The greatest number of keys that are lists, maps and the like, which are compared one by one.
const MAX_UNINDEXED: usize = 1000;

/// What an entry takes, with its place in the index.
const ENTRY_BYTES: usize = 4 * ITEM_BYTES;

/// The steps to find a key where nothing counts them.
const UNCOUNTED_STEPS: u64 = 100_000;

/// A key, such that equal keys of different numeric types are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Bool(bool),
    Int(i64),
    /// Above the greatest `i64`.
    Uint(u64),
    /// The bits of a float.
    Double(u64),
    Text(Box<str>),
}

impl Key {
    fn new(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Int(*value),
            Value::Uint(value) => i64::try_from(*value).map_or(Self::Uint(*value), Self::Int),
            Value::Double(value) => Self::Double(value.to_bits()),
            Value::String(text) => Self::Text((**text).into()),
            _ => return None,
        })
    }
}

/// A float as a key, if it is a whole number in range.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::float_cmp)]
fn whole(value: f64) -> Option<Key> {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() != 0.0 {
        return None;
    }
    if (-TWO_TO_63..TWO_TO_63).contains(&value) {
        return Some(Key::Int(value as i64));
    }
    (value > 0.0 && value < TWO_TO_63 * 2.0).then_some(Key::Uint(value as u64))
}

impl<'a> Entries<'a> {
    /// The fields of an object of a type.
    pub(crate) fn of_type(name: &Arc<str>) -> Self {
        Self {
            type_name: Some(Arc::clone(name)),
            ..Self::default()
        }
    }

    fn position(&self, key: &Value<'_>, work: &mut Work) -> Result<Option<usize>, EvalError> {
        let Some(index_key) = Key::new(key) else {
            for position in &self.unindexed {
                if equality::is_same(&self.pairs[*position].0, key, work)? {
                    return Ok(Some(*position));
                }
            }
            return Ok(None);
        };
        Ok(self.find(&index_key).or_else(|| match key {
            // A float finds a whole number, but not the other way round.
            Value::Double(value) => self.find(&whole(*value)?),
            _ => None,
        }))
    }

    fn find(&self, key: &Key) -> Option<usize> {
        if self.pairs.len() <= FEW {
            self.pairs
                .iter()
                .position(|(known, _)| Key::new(known).as_ref() == Some(key))
        } else {
            self.index.get(key).copied()
        }
    }

    /// Adds an entry, or replaces the one with an equal key.
    pub(crate) fn insert(
        &mut self,
        key: Value<'a>,
        value: Value<'a>,
        work: &mut Work,
    ) -> Result<(), EvalError> {
        if let Some(position) = self.position(&key, work)? {
            self.pairs[position].1 = value;
            return Ok(());
        }
        // The index has a copy of a text.
        let text_bytes = match &key {
            Value::String(text) => text.len(),
            _ => 0,
        };
        work.build(ENTRY_BYTES.saturating_add(text_bytes))?;
        let index_key = Key::new(&key);
        if index_key.is_none() {
            if self.unindexed.len() >= MAX_UNINDEXED {
                return Err(EvalError::cost_limit());
            }
            self.unindexed.push(self.pairs.len());
        }
        self.pairs.push((key, value));
        if self.pairs.len() == FEW + 1 {
            self.index = self
                .pairs
                .iter()
                .enumerate()
                .filter_map(|(position, (key, _))| Some((Key::new(key)?, position)))
                .collect();
        } else if self.pairs.len() > FEW
            && let Some(index_key) = index_key
        {
            self.index.insert(index_key, self.pairs.len() - 1);
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: &Value<'_>, work: &mut Work) -> Result<(), EvalError> {
        if let Some(position) = self.position(key, work)? {
            self.pairs.remove(position);
            let entries = std::mem::take(&mut self.pairs);
            self.index.clear();
            self.unindexed.clear();
            for (key, value) in entries {
                self.insert(key, value, work)?;
            }
        }
        Ok(())
    }

    pub(crate) fn contains(&self, key: &Value<'_>, work: &mut Work) -> Result<bool, EvalError> {
        Ok(self.position(key, work)?.is_some())
    }
}

impl<'a> From<Entries<'a>> for Map<'a> {
    fn from(entries: Entries<'a>) -> Self {
        Self(Repr::Entries(Arc::new(entries)))
    }
}

impl<'a> Map<'a> {
    pub(crate) const fn json(fields: &'a JsonMap<String, Json>, values: Option<&'a Schema>) -> Self {
        Self(Repr::Json { fields, values })
    }

    pub(crate) const fn object(fields: &'a JsonMap<String, Json>, schema: &'a ObjectSchema) -> Self {
        Self(Repr::Object { fields, schema })
    }

    /// Makes an object whose fields the host computes.
    pub const fn host(object: &'a (dyn HostObject + 'a)) -> Self {
        Self(Repr::Host(object))
    }

    /// Makes a map from entries; a later entry replaces an earlier one with an equal key.
    pub fn from_entries(entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>) -> Self {
        let mut work = Work::uncounted();
        let mut map = Entries::default();
        for (key, value) in entries {
            // Without limits it fails only for more keys than maps of a host have that are lists or maps themselves.
            let _ = map.insert(key, value, &mut work);
        }
        Self::from(map)
    }

    /// The entries, to be changed; in place if no other value shares them.
    pub(crate) fn entries_mut(&mut self, work: &mut Work) -> Result<&mut Entries<'a>, EvalError> {
        if !matches!(self.0, Repr::Entries(_)) {
            let mut entries = Entries::default();
            for key in self.keys() {
                if let Some(value) = self.get(&key) {
                    entries.insert(key, value?, work)?;
                }
            }
            *self = Self::from(entries);
        }
        let Repr::Entries(entries) = &mut self.0 else {
            unreachable!("made above");
        };
        if Arc::get_mut(entries).is_none() {
            work.build(entries.pairs.len().saturating_mul(ENTRY_BYTES))?;
        }
        Ok(Arc::make_mut(entries))
    }

    /// Returns the type of an object that an expression constructed, such as `Object.spec` or `JSONPatch`; `None` of all
    /// other maps and objects.
    pub fn constructed_type(&self) -> Option<&str> {
        match &self.0 {
            Repr::Entries(entries) => entries.type_name.as_deref(),
            _ => None,
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Json { fields, .. } | Repr::Object { fields, .. } => fields.len(),
            Repr::Entries(entries) => entries.pairs.len(),
            Repr::Host(object) => object.names().len(),
        }
    }

    /// Whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a key, or `None` if it is absent. Fails if JSON does not match its schema.
    pub fn get(&self, key: &Value<'_>) -> Option<Result<Value<'a>, EvalError>> {
        self.look_up(key, &mut Work::of_constant(UNCOUNTED_STEPS))
    }

    /// Like [`Self::get`], and counts the steps to compare keys that have no index.
    pub(crate) fn look_up(&self, key: &Value<'_>, work: &mut Work) -> Option<Result<Value<'a>, EvalError>> {
        if let Value::String(name) = key
            && let Err(error) = work.read(name.len())
        {
            return Some(Err(error));
        }
        match (&self.0, key) {
            (Repr::Entries(entries), _) => match entries.position(key, work) {
                Ok(position) => Some(Ok(entries.pairs[position?].1.clone())),
                Err(error) => Some(Err(error)),
            },
            (_, Value::String(name)) => self.field(name),
            (Repr::Object { .. } | Repr::Json { values: Some(_), .. }, _) => {
                Some(Err(EvalError::no_such_overload()))
            }
            _ => None,
        }
    }

    /// Returns the value of a text key.
    pub fn field(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        match &self.0 {
            Repr::Json { fields, values } => {
                let json = fields.get(name)?;
                Some(match values {
                    Some(schema) => schema.value(json),
                    None => Ok(Value::from_json(json)),
                })
            }
            Repr::Object { fields, schema } => {
                let (name, schema) = schema.field(name)?;
                let json = fields.get(name).filter(|json| !json.is_null())?;
                Some(schema.value(json))
            }
            Repr::Entries(entries) => {
                let position = entries.find(&Key::Text(name.into()))?;
                Some(Ok(entries.pairs[position].1.clone()))
            }
            Repr::Host(object) => object.field(name),
        }
    }

    /// The value of a property by its name in JSON, as far as it is there and valid.
    pub(crate) fn get_json_name(&self, name: &str) -> Option<Value<'a>> {
        match &self.0 {
            Repr::Object { fields, schema } => {
                let schema = &schema.properties.get(name)?.schema;
                schema.value(fields.get(name)?).ok()
            }
            _ => self.field(name)?.ok(),
        }
    }

    /// The keys. Of an object, those of the fields that expressions can see and that are there.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match &self.0 {
            Repr::Json { fields, .. } => fields.keys().map(|key| Value::text(key)).collect(),
            Repr::Object { fields, schema } => fields
                .keys()
                .filter_map(|key| schema.properties.get(key.as_str()))
                .filter_map(|property| property.cel_name.as_deref())
                .map(Value::text)
                .collect(),
            Repr::Entries(entries) => entries.pairs.iter().map(|(key, _)| key.clone()).collect(),
            Repr::Host(object) => object.names().into_iter().map(Value::text).collect(),
        }
    }

    /// Whether the map comes from data with a schema, which compares differently in Kubernetes.
    pub(crate) const fn is_schema_data(&self) -> bool {
        matches!(self.0, Repr::Json { values: Some(_), .. } | Repr::Object { .. })
    }

    /// Whether the maps have equal entries.
    pub(crate) fn equals(&self, other: &Self, work: &mut Work) -> Result<bool, EvalError> {
        if self.len() != other.len() {
            return Ok(false);
        }
        if let Repr::Object { fields, schema } = &self.0 {
            return self.object_equals(fields, schema, other, work);
        }
        for key in self.keys() {
            let (Some(left), Some(right)) = (self.look_up(&key, work), other.look_up(&key, work)) else {
                return Ok(false);
            };
            if !equality::equals(&left?, &right?, work)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares an object as kube-apiserver does: properties without a schema differ only if both sides have them.
    fn object_equals(
        &self,
        fields: &JsonMap<String, Json>,
        schema: &ObjectSchema,
        other: &Self,
        work: &mut Work,
    ) -> Result<bool, EvalError> {
        for (name, json) in fields {
            let Some(property) = schema.properties.get(name.as_str()) else {
                let (Repr::Object { fields: others, .. } | Repr::Json { fields: others, .. }) = &other.0
                else {
                    return Err(EvalError::no_such_overload());
                };
                work.spend(1)?;
                if others.get(name).is_some_and(|other| other != json) {
                    return Ok(false);
                }
                continue;
            };
            let Some(cel_name) = property.cel_name.as_deref() else {
                if let Repr::Object { fields: others, .. } | Repr::Json { fields: others, .. } = &other.0 {
                    work.spend(1)?;
                    if others.get(name) != Some(json) {
                        return Ok(false);
                    }
                }
                continue;
            };
            match (self.field(cel_name), other.field(cel_name)) {
                (None, None) => {}
                (Some(left), Some(right)) => {
                    if !equality::equals(&left?, &right?, work)? {
                        return Ok(false);
                    }
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}
