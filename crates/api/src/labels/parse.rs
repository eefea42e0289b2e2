//! Parses the text form of a selector, with kube-apiserver's messages.

use super::{Operator, Requirement};
use crate::naming;

/// Parses the requirements of a selector.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser {
        tokens: tokens(text),
        next: 0,
    };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Word(_) | Token::Symbol("!") => {}
            Token::End => return Ok(requirements),
            other @ Token::Symbol(_) => {
                return Err(format!(
                    "found '{}', expected: !, identifier, or 'end of string'",
                    other.text()
                ));
            }
        }
        requirements.push(
            parser
                .requirement()
                .map_err(|why| format!("unable to parse requirement: {why}"))?,
        );
        match parser.next_token() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => {
                let next = parser.peek();
                if !matches!(next, Token::Word(_) | Token::Symbol("!")) {
                    return Err(format!("found '{}', expected: identifier after ','", next.text()));
                }
            }
            other => {
                return Err(format!(
                    "found '{}', expected: ',' or 'end of string'",
                    other.text()
                ));
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Symbol(symbol) => symbol,
            Self::End => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", "<", ">"];
    let mut rest = text.trim_start();
    let mut tokens = Vec::new();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest
                .find(|c: char| c.is_whitespace() || "=!,()<>".contains(c))
                .unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    tokens.push(Token::End);
    tokens
}

struct Parser {
    /// The last one is `End`.
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn next_token(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = *self.peek() == Token::Symbol("!");
        if absent {
            self.next_token();
        }
        let key = match self.next_token() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        if let Some(why) = naming::qualified(&key).into_iter().next() {
            return Err(format!("<nil>: Invalid value: {key:?}: {why}"));
        }
        if absent {
            return Ok(Requirement::new(key, Operator::DoesNotExist, Vec::new()));
        }
        let requirement = match self.peek().clone() {
            Token::End | Token::Symbol(",") => {
                return Ok(Requirement::new(key, Operator::Exists, Vec::new()));
            }
            Token::Symbol("=" | "==") => {
                self.next_token();
                Requirement::new(key, Operator::In, vec![self.value()?])
            }
            Token::Symbol("!=") => {
                self.next_token();
                Requirement::new(key, Operator::NotIn, vec![self.value()?])
            }
            Token::Symbol(sign @ ("<" | ">")) => {
                self.next_token();
                let value = self.value()?;
                if value.parse::<i64>().is_err() {
                    return Err(format!(
                        "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    ));
                }
                let operator = if sign == ">" {
                    Operator::GreaterThan
                } else {
                    Operator::LessThan
                };
                return Ok(Requirement::new(key, operator, vec![value]));
            }
            Token::Word(word) if word == "in" || word == "notin" => {
                self.next_token();
                let operator = if word == "in" {
                    Operator::In
                } else {
                    Operator::NotIn
                };
                Requirement::new(key, operator, self.values()?)
            }
            other => {
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.text()
                ));
            }
        };
        for (index, value) in requirement.values.iter().enumerate() {
            if let Some(why) = naming::label_value(value).into_iter().next() {
                let key = &requirement.key;
                return Err(format!("values[{index}][{key}]: Invalid value: {value:?}: {why}"));
            }
        }
        Ok(requirement)
    }

    /// The value of `key=value`, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        match self.peek().clone() {
            Token::Word(value) => {
                self.next_token();
                Ok(value)
            }
            Token::End | Token::Symbol(",") => Ok(String::new()),
            other @ Token::Symbol(_) => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// Parses `(a, b)`. Values may be empty: `(,a)`.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next_token();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = Vec::new();
        let mut expects_value = true;
        loop {
            match self.next_token() {
                Token::Word(value) if expects_value => {
                    values.push(value);
                    expects_value = false;
                }
                Token::Symbol(",") => {
                    if expects_value {
                        values.push(String::new());
                    }
                    expects_value = true;
                }
                Token::Symbol(")") => {
                    if expects_value {
                        values.push(String::new());
                    }
                    values.sort_unstable();
                    values.dedup();
                    return Ok(values);
                }
                other if expects_value => {
                    return Err(format!("found '{}', expected: ',', or identifier", other.text()));
                }
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}
