//! Lists.
//!
//! `a + b` does not copy: it is a balanced tree of parts, so that a rule cannot make the server copy a large list for
//! each iteration of a loop, which costs as much as adding two numbers.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::{
    EvalError, Value,
    budget::Work,
    equality,
    schema::{ListKind, ListSchema},
    value::item_keys,
};

/// A list of values.
#[derive(Clone, Debug)]
pub struct List<'a>(Repr<'a>);

#[derive(Clone, Debug)]
enum Repr<'a> {
    Json {
        items: &'a [Json],
        schema: Option<&'a ListSchema>,
    },
    Vec(Arc<Vec<Value<'a>>>),
    /// The result of `+` on a list of type set or map, which is one too.
    Typed(Arc<Vec<Value<'a>>>, &'a ListSchema),
    Join(Arc<Join<'a>>),
}

#[derive(Debug)]
struct Join<'a> {
    left: List<'a>,
    right: List<'a>,
    len: usize,
    /// Of the tree below. It is balanced, so it is small, and no walk over it recurses deep.
    height: u8,
}

impl<'a> From<Vec<Value<'a>>> for List<'a> {
    fn from(values: Vec<Value<'a>>) -> Self {
        Self(Repr::Vec(Arc::new(values)))
    }
}

impl<'a> List<'a> {
    pub(crate) const fn json(items: &'a [Json], schema: Option<&'a ListSchema>) -> Self {
        Self(Repr::Json { items, schema })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Json { items, .. } => items.len(),
            Repr::Vec(values) | Repr::Typed(values, _) => values.len(),
            Repr::Join(join) => join.len,
        }
    }

    /// Whether the list has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an element, or `None` after the end. Fails if JSON does not match its schema.
    pub fn get(&self, mut index: usize) -> Option<Result<Value<'a>, EvalError>> {
        let mut list = self;
        loop {
            match &list.0 {
                Repr::Json { items, schema } => return Some(convert(items.get(index)?, *schema)),
                Repr::Vec(values) | Repr::Typed(values, _) => return Some(Ok(values.get(index)?.clone())),
                Repr::Join(join) => {
                    let left = join.left.len();
                    if index < left {
                        list = &join.left;
                    } else {
                        index -= left;
                        list = &join.right;
                    }
                }
            }
        }
    }

    /// Iterates over the elements.
    pub fn iter(&self) -> Iter<'_, 'a> {
        Iter {
            part: None,
            index: 0,
            rest: vec![self],
        }
    }

    fn typed(&self) -> Option<&'a ListSchema> {
        match self.0 {
            Repr::Json {
                schema: Some(schema), ..
            }
            | Repr::Typed(_, schema)
                if schema.kind != ListKind::Atomic =>
            {
                Some(schema)
            }
            _ => None,
        }
    }

    /// Whether the list comes from data with a schema, which compares differently in Kubernetes.
    pub(crate) const fn is_schema_data(&self) -> bool {
        matches!(self.0, Repr::Json { schema: Some(_), .. } | Repr::Typed(..))
    }

    /// The value of `+`.
    pub(crate) fn concat(self, other: Self, work: &mut Work) -> Result<Self, EvalError> {
        match self.typed() {
            Some(schema) => self.merge(&other, schema, work),
            None => self.join(other, work),
        }
    }

    fn join(self, other: Self, work: &mut Work) -> Result<Self, EvalError> {
        /// Up to this length, copying is cheaper than a tree.
        const SMALL: usize = 16;
        if self.is_empty() && !self.is_schema_data() {
            return Ok(other);
        }
        if other.is_empty() {
            return Ok(self);
        }
        let mut this = self;
        if let (Repr::Vec(left), Repr::Vec(right)) = (&mut this.0, &other.0) {
            if right.len() <= SMALL
                && let Some(left) = Arc::get_mut(left)
            {
                work.build_list(right.len())?;
                // No other value shares the list: a loop adds to it in place.
                left.extend_from_slice(right);
                return Ok(this);
            }
            if left.len() + right.len() <= SMALL {
                work.build_list(left.len() + right.len())?;
                return Ok(Self::from([&left[..], &right[..]].concat()));
            }
        }
        let this = this;
        let (left, right) = (this.height(), other.height());
        match (&this.0, &other.0) {
            (Repr::Join(join), _) if left > right + 1 => {
                let right = join.right.clone().join(other, work)?;
                balanced(join.left.clone(), right, work)
            }
            (_, Repr::Join(join)) if right > left + 1 => {
                let left = this.clone().join(join.left.clone(), work)?;
                balanced(left, join.right.clone(), work)
            }
            _ => node(this, other, work),
        }
    }

    fn height(&self) -> u8 {
        match &self.0 {
            Repr::Join(join) => join.height,
            _ => 0,
        }
    }

    /// Set: the union. Map: items of `other` replace those with the same keys.
    fn merge(&self, other: &Self, schema: &'a ListSchema, work: &mut Work) -> Result<Self, EvalError> {
        work.build_list(self.len().saturating_add(other.len()))?;
        let mut values = self.iter().collect::<Result<Vec<_>, _>>()?;
        let mut keys: Vec<_> = values
            .iter()
            .map(|value| item_keys(value, &schema.kind))
            .collect();
        for value in other {
            let value = value?;
            if schema.kind == ListKind::Set {
                let mut found = false;
                for known in &values {
                    if equality::equals(known, &value, work)? {
                        found = true;
                        break;
                    }
                }
                if !found {
                    values.push(value);
                }
                continue;
            }
            let key = item_keys(&value, &schema.kind);
            let mut place = None;
            for (index, known) in keys.iter().enumerate() {
                if equality::same_keys(known.as_ref(), key.as_ref(), work)? {
                    place = Some(index);
                    break;
                }
            }
            match place {
                Some(index) => values[index] = value,
                None => {
                    values.push(value);
                    keys.push(key);
                }
            }
        }
        Ok(Self(Repr::Typed(Arc::new(values), schema)))
    }

    /// Whether the lists are equal, by the rules of this one's type.
    pub(crate) fn equals(&self, other: &Self, work: &mut Work) -> Result<bool, EvalError> {
        if self.len() != other.len() {
            return Ok(false);
        }
        match self.typed().map(|schema| &schema.kind) {
            Some(ListKind::Set) => {
                for value in other {
                    if !self.contains(&value?, work)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Some(kind @ ListKind::Map(_)) => self.equals_by_key(other, kind, work),
            _ => {
                for (left, right) in self.iter().zip(other.iter()) {
                    if !equality::equals(&left?, &right?, work)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    fn equals_by_key(&self, other: &Self, kind: &ListKind, work: &mut Work) -> Result<bool, EvalError> {
        work.build_list(self.len().saturating_mul(2))?;
        let mut own = Vec::with_capacity(self.len());
        for value in self {
            let value = value?;
            own.push((item_keys(&value, kind), value));
        }
        for value in other {
            let value = value?;
            let keys = item_keys(&value, kind);
            let mut found = false;
            for (known, item) in own.iter().rev() {
                if equality::same_keys(known.as_ref(), keys.as_ref(), work)? {
                    if !equality::equals(item, &value, work)? {
                        return Ok(false);
                    }
                    found = true;
                    break;
                }
            }
            if !found {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The value of `in`.
    pub(crate) fn contains(&self, value: &Value<'a>, work: &mut Work) -> Result<bool, EvalError> {
        let mut failure = None;
        for element in self {
            // What is looked for is on the left, as in cel-go.
            match equality::equals(value, &element?, work) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) if error.is_final() => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(false), Err)
    }
}

/// The greatest number of elements of a joined list: joins are shared, so a list can have more elements than bytes.
const MAX_ELEMENTS: usize = 10_000_000;

fn node<'a>(left: List<'a>, right: List<'a>, work: &mut Work) -> Result<List<'a>, EvalError> {
    let len = left.len().saturating_add(right.len());
    if len > MAX_ELEMENTS {
        return Err(EvalError::cost_limit());
    }
    work.build(size_of::<Join<'_>>())?;
    Ok(List(Repr::Join(Arc::new(Join {
        len,
        height: left.height().max(right.height()) + 1,
        left,
        right,
    }))))
}

/// Joins two trees whose heights differ by at most two.
fn balanced<'a>(left: List<'a>, right: List<'a>, work: &mut Work) -> Result<List<'a>, EvalError> {
    if left.height() > right.height() + 1
        && let Repr::Join(join) = &left.0
    {
        let (outer, inner) = (join.left.clone(), join.right.clone());
        let (left, right) = match &inner.0 {
            Repr::Join(middle) if inner.height() > outer.height() => (
                node(outer, middle.left.clone(), work)?,
                node(middle.right.clone(), right, work)?,
            ),
            _ => (outer, node(inner, right, work)?),
        };
        return node(left, right, work);
    }
    if right.height() > left.height() + 1
        && let Repr::Join(join) = &right.0
    {
        let (inner, outer) = (join.left.clone(), join.right.clone());
        let (left, right) = match &inner.0 {
            Repr::Join(middle) if inner.height() > outer.height() => (
                node(left, middle.left.clone(), work)?,
                node(middle.right.clone(), outer, work)?,
            ),
            _ => (node(left, inner, work)?, outer),
        };
        return node(left, right, work);
    }
    node(left, right, work)
}

fn convert<'a>(json: &'a Json, schema: Option<&'a ListSchema>) -> Result<Value<'a>, EvalError> {
    match schema {
        Some(schema) => schema.items.value(json),
        None => Ok(Value::from_json(json)),
    }
}

/// Iterates over the elements of a [`List`].
pub struct Iter<'l, 'a> {
    part: Option<&'l List<'a>>,
    index: usize,
    rest: Vec<&'l List<'a>>,
}

impl<'a> Iterator for Iter<'_, 'a> {
    type Item = Result<Value<'a>, EvalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(part) = self.part {
                if let Some(value) = part.get(self.index) {
                    self.index += 1;
                    return Some(value);
                }
                self.part = None;
            }
            let next = self.rest.pop()?;
            match &next.0 {
                Repr::Join(join) => self.rest.extend([&join.right, &join.left]),
                _ => {
                    self.part = Some(next);
                    self.index = 0;
                }
            }
        }
    }
}

impl<'l, 'a> IntoIterator for &'l List<'a> {
    type Item = Result<Value<'a>, EvalError>;
    type IntoIter = Iter<'l, 'a>;

    fn into_iter(self) -> Iter<'l, 'a> {
        self.iter()
    }
}
