//! Strategic merge patch: a merge patch that merges lists according to the schema, with directives.
//!
//! ```text
//!   patch map ─► $patch? ─► $retainKeys ─► $setElementOrder/x with x ─► field by field
//!                                                                         │ map: merge, or replace
//!                                                                         │ list: merge by key, as a set, or replace
//!                                                                         ▼
//!                                             order: the patch's items, among those that only the server has
//! ```
//!
//! A pure function of schema, state and patch. Its errors are those of Kubernetes 1.36, most of which are a 500
//! without a reason.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::{
    golang,
    schema::{PatchStrategy, SchemaView},
    status::Status,
};

type Fields = Map<String, Value>;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatchError {
    BadRetainKeys,
    BadElementOrder,
    BadDeletionList,
    ListOfLists,
    /// Errors for which the real server has no status.
    Other(String),
}

impl From<PatchError> for Status {
    fn from(refusal: PatchError) -> Self {
        match refusal {
            PatchError::BadRetainKeys => Self::bad_request("invalid patch format of retainKeys"),
            PatchError::BadElementOrder => Self::bad_request("invalid patch format of setElementOrder list"),
            PatchError::BadDeletionList => Self::bad_request("invalid patch format of primitive list"),
            PatchError::ListOfLists => Self::patch_rejected(),
            PatchError::Other(message) => Self::without_reason(message),
        }
    }
}

/// Applies a patch to a state.
pub(crate) fn apply(
    schema: Option<SchemaView<'_>>,
    state: Fields,
    patch: Fields,
) -> Result<Fields, PatchError> {
    merge(schema, state, patch)
}

/// `schema` is none where nothing is declared; lists are replaced there.
fn merge(schema: Option<SchemaView<'_>>, mut state: Fields, mut patch: Fields) -> Result<Fields, PatchError> {
    match patch.remove(DIRECTIVE) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => return Ok(patch),
        Some(Value::String(directive)) if directive == "delete" => return Ok(Fields::new()),
        Some(directive) => return Err(unknown_directive(directive, patch)),
    }
    if let Some(keys) = patch.remove(RETAIN_KEYS) {
        retain_keys(&keys, &mut state, &patch)?;
    }
    let orders: Vec<_> = patch
        .keys()
        .filter(|key| key.starts_with(ELEMENT_ORDER))
        .cloned()
        .collect();
    for key in orders {
        let order = patch.remove(&key).expect("a key of the patch");
        merge_in_order(schema, &key, &order, &mut state, &mut patch)?;
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE_FROM_LIST) {
            let field = field.strip_prefix('/').ok_or(PatchError::BadDeletionList)?;
            delete_from_list(field, &value, &mut state)?;
        } else {
            merge_field(schema, key, value, &mut state)?;
        }
    }
    Ok(state)
}

fn merge_field(
    schema: Option<SchemaView<'_>>,
    key: String,
    value: Value,
    state: &mut Fields,
) -> Result<(), PatchError> {
    if value.is_null() {
        state.remove(&key);
        return Ok(());
    }
    let field = schema.and_then(|schema| schema.field(&key));
    let strategy = field.map(|field| &field.own_node().patch_strategy);
    let merged = match (state.remove(&key), value) {
        (Some(Value::Object(old)), Value::Object(new)) => match strategy {
            Some(PatchStrategy::Replace) => new.into(),
            _ => merge(field, old, new)?.into(),
        },
        (Some(Value::Array(old)), Value::Array(new)) => match (field, strategy) {
            (Some(field), Some(PatchStrategy::Merge(merge_key))) => {
                merge_lists(field, merge_key.as_deref(), old, new)?.into()
            }
            _ => new.into(),
        },
        (_, mut value) => {
            drop_nulls(&mut value);
            match without_directives(value) {
                Some(value) => value,
                None => return Ok(()),
            }
        }
    };
    state.insert(key, merged);
    Ok(())
}

/// Removes the fields of `state` that the directive does not list. The patch may set only listed ones.
fn retain_keys(keys: &Value, state: &mut Fields, patch: &Fields) -> Result<(), PatchError> {
    let keys = keys.as_array().ok_or(PatchError::BadRetainKeys)?;
    let keys: HashSet<_> = keys.iter().filter_map(Value::as_str).collect();
    let named = |key: &str| keys.contains(key);
    let is_beside = |key: &str| key.starts_with(DELETE_FROM_LIST) || key.starts_with(ELEMENT_ORDER);
    if patch
        .iter()
        .any(|(key, value)| !value.is_null() && !is_beside(key) && !named(key))
    {
        return Err(PatchError::BadRetainKeys);
    }
    state.retain(|key, _| named(key));
    Ok(())
}

/// Merges the list of an order directive, and sorts it in that order.
fn merge_in_order(
    schema: Option<SchemaView<'_>>,
    directive: &str,
    order: &Value,
    state: &mut Fields,
    patch: &mut Fields,
) -> Result<(), PatchError> {
    let Value::Array(order) = order else {
        return Err(wrong_type("[]interface {}", order));
    };
    let key = directive
        .strip_prefix(ELEMENT_ORDER)
        .and_then(|rest| rest.strip_prefix('/'))
        .ok_or(PatchError::BadElementOrder)?;
    let list = |fields: &Fields| match fields.get(key) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(wrong_type("[]interface {}", other)),
    };
    let (old, new) = (list(state)?, list(patch)?);
    let field = schema
        .and_then(|schema| schema.field(key))
        .ok_or_else(|| unknown_field(schema, key))?;
    let merge_key = field.own_node().patch_strategy.merge_key();
    check_order(new.as_deref().unwrap_or_default(), order, merge_key)?;
    let merged = match (&old, &new) {
        (None, None) => return Ok(()),
        (Some(old), None) => old.clone(),
        (None, Some(new)) => new.iter().cloned().filter_map(without_directives).collect(),
        (Some(old), Some(new)) => match &field.own_node().patch_strategy {
            PatchStrategy::Merge(_) => merge_lists(field, merge_key, old.clone(), new.clone())?,
            _ => new.clone(),
        },
    };
    let old = old.unwrap_or_default();
    element_type([&old, new.as_deref().unwrap_or_default()])?;
    let ordered = interleave(merged, order, &old, merge_key)?;
    state.insert(key.to_owned(), ordered.into());
    patch.remove(key);
    Ok(())
}

/// Checks that the items of a patch are in the order of its directive.
fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        loop {
            let Some(expected) = rest.next() else {
                return Err(PatchError::Other(format!(
                    "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
                    golang::format_value(&Value::from(patch)),
                    golang::format_value(&Value::from(order)),
                )));
            };
            if identity(item, merge_key)? == identity(expected, merge_key)? {
                break;
            }
        }
    }
    Ok(())
}

fn merge_lists(
    field: SchemaView<'_>,
    merge_key: Option<&str>,
    mut state: Vec<Value>,
    mut patch: Vec<Value>,
) -> Result<Vec<Value>, PatchError> {
    if state.is_empty() && patch.is_empty() {
        return Ok(state);
    }
    if element_type([&state, &patch])? != "map[string]interface {}" {
        let mut known: HashSet<_> = state.iter().collect();
        let more = patch.iter().filter(|item| known.insert(item)).cloned();
        let merged = state.iter().cloned().chain(more).collect();
        return interleave(merged, &patch, &state, None);
    }
    let Some(merge_key) = merge_key else {
        return Err(PatchError::Other(
            "cannot merge lists without merge key for struct".into(),
        ));
    };
    if follow_item_directives(merge_key, &mut state, &mut patch)? {
        return Ok(patch);
    }
    let mut merged = state.clone();
    // Of several items with one key, the first is merged.
    let mut positions = HashMap::new();
    for (position, item) in state.iter().enumerate() {
        if let Some(key) = item.get(merge_key) {
            positions.entry(key).or_insert(position);
        }
    }
    for item in &patch {
        let key = identity(item, Some(merge_key))?;
        match positions.get(key).map(|position| &mut merged[*position]) {
            Some(Value::Object(known)) => {
                let Value::Object(item) = item.clone() else {
                    unreachable!("all items are maps")
                };
                *known = merge(field.items(), std::mem::take(known), item)?;
                // A null removed its key.
                if known.get(merge_key) != Some(key) {
                    positions.remove(key);
                }
            }
            _ => {
                positions.insert(key, merged.len());
                merged.push(item.clone());
            }
        }
    }
    interleave(merged, &patch, &state, Some(merge_key))
}

/// Deletes the items that the patch deletes, and removes the directives from it. True if the patch replaces the list.
fn follow_item_directives(
    merge_key: &str,
    state: &mut Vec<Value>,
    patch: &mut Vec<Value>,
) -> Result<bool, PatchError> {
    let (mut replaces, mut deleted) = (false, HashSet::new());
    for item in patch.iter() {
        match item.get(DIRECTIVE) {
            None => {}
            Some(Value::String(directive)) if directive == "delete" => {
                let key = identity(item, Some(merge_key))?;
                deleted.insert(key);
            }
            Some(Value::String(directive)) if directive == "replace" => replaces = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(PatchError::Other(
                    "merging lists cannot yet be specified in the patch".into(),
                ));
            }
            Some(directive) => {
                let mut fields = item.as_object().cloned().unwrap_or_default();
                fields.remove(DIRECTIVE);
                return Err(unknown_directive(directive.clone(), fields));
            }
        }
    }
    state.retain(|known| known.get(merge_key).is_none_or(|key| !deleted.contains(key)));
    patch.retain(|item| item.get(DIRECTIVE).is_none());
    Ok(replaces)
}

fn delete_from_list(key: &str, deleted: &Value, state: &mut Fields) -> Result<(), PatchError> {
    // A value of another type, or for an absent field, deletes nothing.
    match (state.get_mut(key), deleted) {
        (Some(Value::Array(items)), Value::Array(deleted)) => {
            if !(items.is_empty() && deleted.is_empty()) {
                element_type([items, deleted])?;
            }
            let deleted: HashSet<_> = deleted.iter().collect();
            items.retain(|item| !deleted.contains(item));
        }
        (Some(_), Value::Null) => {
            state.remove(key);
        }
        _ => {}
    }
    Ok(())
}

/// Sorts a merged list: items in `order` in its order, the others as in `before`, each of the latter before the first
/// ordered item that it preceded.
fn interleave(
    merged: Vec<Value>,
    order: &[Value],
    before: &[Value],
    merge_key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    let (before, order) = (Positions::of(before, merge_key), Positions::of(order, merge_key));
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        let key = identity(&item, merge_key)?;
        let was = before.position(key)?;
        match order.position(key)? {
            Some(index) => named.push((index, was, item)),
            None => others.push((was, item)),
        }
    }
    named.sort_by_key(|(index, ..)| *index);
    others.sort_by_key(|(was, _)| *was);
    let mut all = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, was, item) in named {
        while let Some((_, other)) =
            others.next_if(|(other, _)| matches!((other, was), (Some(o), Some(w)) if *o < w))
        {
            all.push(other);
        }
        all.push(item);
    }
    all.extend(others.map(|(_, item)| item));
    Ok(all)
}

/// The positions of a list's items, by identity.
struct Positions<'a> {
    /// The first position of each.
    positions: HashMap<&'a Value, usize>,
    /// The error at the first item without a key; later items are not in `positions`.
    error: Option<PatchError>,
}

impl<'a> Positions<'a> {
    fn of(list: &'a [Value], merge_key: Option<&str>) -> Self {
        let (mut positions, mut error) = (HashMap::with_capacity(list.len()), None);
        for (index, item) in list.iter().enumerate() {
            let key = if merge_key.is_some() && !item.is_object() {
                Err(PatchError::Other(format!("value for key {index} is not a map")))
            } else {
                identity(item, merge_key)
            };
            match key {
                Ok(key) => {
                    positions.entry(key).or_insert(index);
                }
                Err(why) => {
                    error = Some(why);
                    break;
                }
            }
        }
        Self { positions, error }
    }

    /// The position of an item; an error if it is not found before the first item without a key.
    fn position(&self, key: &Value) -> Result<Option<usize>, PatchError> {
        match (self.positions.get(key), &self.error) {
            (Some(position), _) => Ok(Some(*position)),
            (None, Some(why)) => Err(why.clone()),
            (None, None) => Ok(None),
        }
    }
}

/// The identity of an item: the merge key's value, or the item itself.
fn identity<'a>(item: &'a Value, merge_key: Option<&str>) -> Result<&'a Value, PatchError> {
    let Some(merge_key) = merge_key else {
        return Ok(item);
    };
    let fields = item
        .as_object()
        .ok_or_else(|| wrong_type("map[string]interface {}", item))?;
    fields.get(merge_key).ok_or_else(|| {
        let shown = golang::format_value(item);
        PatchError::Other(format!(
            "map: {shown} does not contain declared merge key: {merge_key}"
        ))
    })
}

/// The type of the lists' items. All must have the same type, other than list.
fn element_type(lists: [&[Value]; 2]) -> Result<&'static str, PatchError> {
    let mut types = lists.into_iter().flatten().map(golang::type_of);
    let first = types
        .next()
        .ok_or_else(|| PatchError::Other("no elements in any of the given slices".into()))?;
    if first == "[]interface {}" {
        return Err(PatchError::ListOfLists);
    }
    if types.any(|other| other != first) {
        let shown: Vec<_> = lists.map(|list| golang::format_value(&Value::from(list))).into();
        return Err(PatchError::Other(format!(
            "list element types are not identical: [{}]",
            shown.join(" ")
        )));
    }
    Ok(first)
}

/// Removes directives from a value that is not merged; none if it is a directive itself.
fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => return None,
        Value::Object(fields) => {
            let kept = fields
                .into_iter()
                .filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.into_iter().filter_map(without_directives).collect(),
        other => other,
    })
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn unknown_directive(directive: Value, mut patch: Fields) -> PatchError {
    let directive_text = match &directive {
        Value::String(text) => text.clone(),
        Value::Null => "%!s(<nil>)".to_owned(),
        other => format!("%!s({}={})", golang::type_of(other), golang::format_value(other)),
    };
    patch.insert(DIRECTIVE.to_owned(), directive);
    let shown = golang::format_value(&patch.into());
    PatchError::Other(format!("unknown patch type: {directive_text} in map: {shown}"))
}

fn unknown_field(schema: Option<SchemaView<'_>>, key: &str) -> PatchError {
    let name = schema.and_then(SchemaView::struct_name).unwrap_or_default();
    PatchError::Other(format!(
        "unable to find api field in struct {name} for the json field {key:?}"
    ))
}

fn wrong_type(wanted: &str, got: &Value) -> PatchError {
    PatchError::Other(format!(
        "expected a {wanted}, but received a {}",
        golang::type_of(got)
    ))
}
