//! Token safety through a template: no text of a request can become an added token.
//!
//! Before rendering, the first character of whatever could be (the beginning of) an added token's literal inside a string of
//! the request is replaced by a mark; after the rendered prompt was split at the literals that are left - the template's
//! own - marks become the characters they stand for. The comparison skips whitespace, ignores ASCII case and takes the end
//! of a string for a match, so that joining, trimming and lower-casing strings in the template can't complete a literal.
//! A mark stands for exactly one character, so lengths and positions that a template computes stay as they are.
use crate::added::AddedTokens;
use std::borrow::Cow;

const ROOM: u32 = 0x100; // reserved characters, then as many that escaped ones are moved to
const BASES: [u32; 3] = [0xF_F000, 0x10_F000, 0xF000]; // private use

pub struct Marks {
    base: u32,
    firsts: Vec<char>,
    literals: Vec<String>,
}

impl Marks {
    /// `template`: its own characters must not be taken for marks. `guard` false: only reserved characters are escaped.
    pub fn new(added: &AddedTokens, template: &str, guard: bool) -> Result<Self, String> {
        let free = |b: &&u32| !template.chars().any(|c| (**b..**b + 2 * ROOM).contains(&(c as u32)));
        let base = *BASES.iter().find(free).ok_or("the template uses all ranges of private-use characters")?;
        let (mut firsts, mut literals) = (Vec::new(), Vec::new());
        for token in added.tokens().iter().filter(|_| guard) {
            for c in variants(token.content.chars().next().unwrap()) {
                if !firsts.contains(&c) {
                    firsts.push(c);
                }
            }
            literals.push(token.content.to_ascii_lowercase());
        }
        if firsts.len() as u32 > ROOM - 2 {
            return Err("added tokens begin with too many different characters".into());
        }
        Ok(Marks { base, firsts, literals })
    }

    fn reserved(&self, k: u32) -> char {
        char::from_u32(self.base + k).unwrap()
    }

    fn escape(&self) -> char {
        self.reserved(0)
    }

    /// Never left in marked text: stands at most where a caller put it.
    pub fn sentinel(&self) -> char {
        self.reserved(1)
    }

    fn is_reserved(&self, c: char) -> bool {
        (self.base..self.base + ROOM).contains(&(c as u32))
    }

    /// The text with marks.
    pub fn mark<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !text.chars().any(|c| self.is_reserved(c) || self.firsts.contains(&c)) {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len() + 16);
        for (i, c) in text.char_indices() {
            if self.is_reserved(c) {
                out.push(self.escape());
                out.push(char::from_u32(c as u32 + ROOM).unwrap());
            } else if let Some(k) = self.firsts.iter().position(|&f| f == c).filter(|_| self.could_match(&text[i..])) {
                out.push(self.reserved(2 + k as u32));
            } else {
                out.push(c);
            }
        }
        Cow::Owned(out)
    }

    fn could_match(&self, text: &str) -> bool {
        self.literals.iter().any(|literal| {
            let mut rest = text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_lowercase());
            literal.chars().filter(|c| !c.is_whitespace()).all(|l| rest.next().is_none_or(|c| c == l))
        })
    }

    /// The text that marks stand for.
    pub fn unmark<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !text.chars().any(|c| self.is_reserved(c)) {
            return Cow::Borrowed(text);
        }
        Cow::Owned(self.units(text).filter_map(|u| self.original(u)).collect())
    }

    /// The marked text, escaped characters as they were.
    pub fn units<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Unit> + 'a {
        let mut chars = text.chars();
        std::iter::from_fn(move || {
            let c = chars.next()?;
            if c != self.escape() {
                return Some(if self.is_reserved(c) { Unit::Mark(c) } else { Unit::Plain(c) });
            }
            let original = chars.next().and_then(|e| char::from_u32((e as u32).wrapping_sub(ROOM)));
            Some(original.map_or(Unit::Mark(c), Unit::Plain))
        })
    }

    fn original(&self, unit: Unit) -> Option<char> {
        match unit {
            Unit::Plain(c) => Some(c),
            Unit::Mark(c) => (c as u32 - self.base).checked_sub(2).and_then(|k| self.firsts.get(k as usize).copied()),
        }
    }
}

/// A character of marked text.
#[derive(Clone, Copy)]
pub enum Unit {
    Plain(char),
    Mark(char),
}

fn variants(c: char) -> Vec<char> {
    vec![c, c.to_ascii_lowercase(), c.to_ascii_uppercase()]
}
