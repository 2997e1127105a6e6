//! Added tokens: where their literals stand in a text.
use std::collections::HashMap;

#[derive(Clone, Debug)]
pub struct AddedToken {
    pub id: i32,
    pub content: String,
    pub special: bool,
    pub lstrip: bool,
    pub rstrip: bool,
    pub single_word: bool,
}

#[derive(Debug, PartialEq)]
pub enum Piece<'t> {
    Text(&'t str),
    Token(i32),
}

#[derive(Default)]
pub struct AddedTokens {
    tokens: Vec<AddedToken>,            // by id
    by_content: HashMap<String, usize>, // index into tokens
    by_first: Vec<(u8, Vec<usize>)>,    // first byte -> indices, longest content first
}

impl AddedTokens {
    pub fn new(mut tokens: Vec<AddedToken>) -> Self {
        tokens.sort_by_key(|t| t.id);
        let by_content = tokens.iter().enumerate().map(|(i, t)| (t.content.clone(), i)).collect();
        let mut by_first: Vec<(u8, Vec<usize>)> = Vec::new();
        for (i, t) in tokens.iter().enumerate() {
            let first = t.content.as_bytes()[0];
            match by_first.iter_mut().find(|e| e.0 == first) {
                Some(e) => e.1.push(i),
                None => by_first.push((first, vec![i])),
            }
        }
        for e in by_first.iter_mut() {
            e.1.sort_by_key(|&i| std::cmp::Reverse(tokens[i].content.len()));
        }
        AddedTokens { tokens, by_content, by_first }
    }

    pub fn tokens(&self) -> &[AddedToken] {
        &self.tokens
    }

    pub fn find(&self, content: &str) -> Option<&AddedToken> {
        self.by_content.get(content).map(|&i| &self.tokens[i])
    }

    fn match_at(&self, bytes: &[u8]) -> Option<&AddedToken> {
        let (_, candidates) = self.by_first.iter().find(|e| e.0 == bytes[0])?;
        candidates.iter().map(|&i| &self.tokens[i]).find(|t| bytes.starts_with(t.content.as_bytes()))
    }

    /// The text as plain runs and added tokens: leftmost match first, the longest of several there.
    pub fn split<'t>(&self, text: &'t str) -> Vec<Piece<'t>> {
        let bytes = text.as_bytes();
        let (mut pieces, mut begin, mut i) = (Vec::new(), 0, 0);
        while i < bytes.len() {
            let Some(token) = self.match_at(&bytes[i..]) else {
                i += 1;
                continue;
            };
            let end = i + token.content.len();
            if token.single_word && (is_word(text[..i].chars().next_back()) || is_word(text[end..].chars().next())) {
                i = end;
                continue;
            }
            let mut plain = &text[begin..i];
            if token.lstrip {
                plain = plain.trim_end();
            }
            if !plain.is_empty() {
                pieces.push(Piece::Text(plain));
            }
            pieces.push(Piece::Token(token.id));
            begin = if token.rstrip { text.len() - text[end..].trim_start().len() } else { end };
            i = begin;
        }
        if begin < text.len() {
            pieces.push(Piece::Text(&text[begin..]));
        }
        pieces
    }
}

fn is_word(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || c == '_')
}
