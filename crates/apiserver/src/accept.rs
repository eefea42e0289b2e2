//! Parses the `Accept` header.

use http::HeaderMap;

/// One media range of an `Accept` header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MediaRange<'a> {
    /// `application/json`; either part may be `*`.
    pub(crate) media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaRange<'a> {
    /// A parameter of the media type, such as `as` and `g`.
    pub(crate) fn parameter(&self, name: &str) -> Option<&'a str> {
        let found = self.parameters.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| *value)
    }
}

/// The media ranges that a client accepts, preferred ones first; empty without the header.
pub(crate) fn media_ranges(headers: &HeaderMap) -> Vec<MediaRange<'_>> {
    let accept = headers
        .get(http::header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let mut offers: Vec<_> = accept
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let mut parts = part.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let parameters = parts.filter_map(|part| part.split_once('='));
            MediaRange {
                media,
                parameters: parameters.collect(),
            }
        })
        .collect();
    // The sort is stable: equal ones stay in the order of the header.
    offers.sort_by(|a, b| quality(b).total_cmp(&quality(a)));
    offers
}

fn quality(offer: &MediaRange<'_>) -> f32 {
    let weight = offer.parameter("q").and_then(|text| text.parse::<f32>().ok());
    weight.filter(|weight| weight.is_finite()).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::ACCEPT};

    use super::*;

    #[test]
    fn media_ranges_are_sorted_by_quality_and_stable() {
        let mut headers = HeaderMap::new();
        assert!(media_ranges(&headers).is_empty());
        let text =
            "text/plain;q=0.1, application/json;as=Table;g=meta.k8s.io , */*;q=x, application/yaml;q=0.9";
        headers.insert(ACCEPT, HeaderValue::from_static(text));
        let all = media_ranges(&headers);
        let media: Vec<_> = all.iter().map(|offer| offer.media).collect();
        assert_eq!(
            media,
            ["application/json", "*/*", "application/yaml", "text/plain"]
        );
        assert_eq!(all[0].parameter("as"), Some("Table"));
        assert_eq!(all[0].parameter("v"), None);
    }
}
