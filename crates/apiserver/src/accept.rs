//! What a client would like an answer to be, from its `Accept` header.

use http::HeaderMap;

/// One form that a client takes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Offer<'a> {
    /// `application/json`, or with a `*` for either part.
    pub(crate) media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Offer<'a> {
    /// A parameter of the media type, such as `as` and `g`.
    pub(crate) fn parameter(&self, name: &str) -> Option<&'a str> {
        let found = self.parameters.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| *value)
    }
}

/// The forms that a client takes, the dearest first; none where it does not say.
pub(crate) fn offers(headers: &HeaderMap) -> Vec<Offer<'_>> {
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
            Offer {
                media,
                parameters: parameters.collect(),
            }
        })
        .collect();
    // A stable sort: what is equally dear stays in the order of the header.
    offers.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    offers
}

fn weight(offer: &Offer<'_>) -> f32 {
    let weight = offer.parameter("q").and_then(|text| text.parse::<f32>().ok());
    weight.filter(|weight| weight.is_finite()).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::ACCEPT};

    use super::*;

    #[test]
    fn the_dearest_offer_comes_first_and_equals_stay_in_order() {
        let mut headers = HeaderMap::new();
        assert!(offers(&headers).is_empty());
        let text =
            "text/plain;q=0.1, application/json;as=Table;g=meta.k8s.io , */*;q=x, application/yaml;q=0.9";
        headers.insert(ACCEPT, HeaderValue::from_static(text));
        let all = offers(&headers);
        let media: Vec<_> = all.iter().map(|offer| offer.media).collect();
        assert_eq!(
            media,
            ["application/json", "*/*", "application/yaml", "text/plain"]
        );
        assert_eq!(all[0].parameter("as"), Some("Table"));
        assert_eq!(all[0].parameter("v"), None);
    }
}
