//! tokenizer.json and tokenizer_config.json as one tokenizer: a byte-level model without added tokens, and the added tokens.
use crate::added::{AddedToken, AddedTokens, Piece};
use serde_json::{Map, Value};
use std::collections::HashMap;
use tokenizers::models::bpe::BPE;
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper};

pub struct Tokenizer {
    model: tokenizers::Tokenizer, // knows no added tokens: what it encodes is ordinary text
    added: AddedTokens,
    table: Vec<Entry>,
    eos: Option<i32>,
    named: Vec<(String, String)>, // eos_token, bos_token, … of tokenizer_config
}

#[derive(Clone, Default)]
pub struct Entry {
    pub bytes: Vec<u8>,
    pub kind: u8, // 0 no token, 1 ordinary, 2 added, 3 added and special
}

const NAMED: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
const MAX_IDS: i64 = 1 << 24;

impl Tokenizer {
    pub fn new(json: &str, config: Option<&str>) -> Result<Self, Vec<String>> {
        let one = |e: String| vec![e];
        let mut json = parse_object("tokenizer.json", json).map_err(one)?;
        let config =
            config.map(|c| parse_object("tokenizer_config.json", c)).transpose().map_err(one)?.unwrap_or_default();
        check_form(&json)?;
        let vocab = take_vocab(&json).map_err(one)?;
        let added = merge_added(&json, &config, &vocab)?;
        let mut table = ordinary_table(&vocab);
        for t in added.tokens() {
            if table.len() <= t.id as usize {
                table.resize(t.id as usize + 1, Entry::default());
            }
            table[t.id as usize] = Entry { bytes: t.content.clone().into_bytes(), kind: if t.special { 3 } else { 2 } };
        }
        let named: Vec<(String, String)> =
            NAMED.iter().filter_map(|n| token_text(config.get(*n)?).map(|t| (n.to_string(), t))).collect();
        let eos = named.iter().find(|n| n.0 == "eos_token").map(|n| n.1.clone());
        let eos = eos.and_then(|t| added.find(&t).map(|a| a.id).or_else(|| vocab.get(&t).copied()));
        let model = ordinary_model(&mut json).map_err(one)?;
        let t = Tokenizer { model, added, table, eos, named };
        t.check_ordinary()?;
        Ok(t)
    }

    /// Appends the ids of text in which no added token is looked for.
    pub fn encode_ordinary(&self, text: &str, ids: &mut Vec<i32>) -> Result<(), String> {
        let encoding = self.model.encode_fast(text, false).map_err(|e| e.to_string())?;
        ids.extend(encoding.get_ids().iter().map(|&id| id as i32));
        Ok(())
    }

    pub fn encode(&self, text: &str, with_added: bool) -> Result<Vec<i32>, String> {
        let mut ids = Vec::new();
        if !with_added {
            self.encode_ordinary(text, &mut ids)?;
            return Ok(ids);
        }
        for piece in self.added.split(text) {
            match piece {
                Piece::Text(t) => self.encode_ordinary(t, &mut ids)?,
                Piece::Token(id) => ids.push(id),
            }
        }
        Ok(ids)
    }

    pub fn added(&self) -> &AddedTokens {
        &self.added
    }

    pub fn table(&self) -> &[Entry] {
        &self.table
    }

    pub fn eos(&self) -> Option<i32> {
        self.eos
    }

    pub fn named(&self) -> &[(String, String)] {
        &self.named
    }

    /// The model must not make an added token out of ordinary text (it could where its vocabulary holds the literal too).
    fn check_ordinary(&self) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        for t in self.added.tokens() {
            let mut ids = Vec::new();
            self.encode_ordinary(&t.content, &mut ids).map_err(|e| vec![e])?;
            if ids.contains(&t.id) {
                problems.push(format!("ordinary text {:?} is encoded as the added token {}", t.content, t.id));
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems)
        }
    }
}

fn parse_object(name: &str, text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(m)) => Ok(m),
        Ok(_) => Err(format!("{name}: not an object")),
        Err(e) => Err(format!("{name}: {e}")),
    }
}

/// "text" or {"content": "text"}.
fn token_text(v: &Value) -> Option<String> {
    v.as_str().or_else(|| v.get("content")?.as_str()).map(str::to_string)
}

fn has_type(v: Option<&Value>, kind: &str) -> bool {
    let Some(v) = v else { return false };
    let parts = ["decoders", "pretokenizers"].iter().find_map(|k| v.get(*k)?.as_array());
    v.get("type").and_then(Value::as_str) == Some(kind)
        || parts.is_some_and(|p| p.iter().any(|x| has_type(Some(x), kind)))
}

fn check_form(json: &Map<String, Value>) -> Result<(), Vec<String>> {
    let mut problems = Vec::new();
    let model = json.get("model").and_then(|m| m.get("type")).and_then(Value::as_str);
    if model.is_some_and(|m| m != "BPE") {
        problems.push(format!("tokenizer.json: model type {} is not supported (BPE is)", model.unwrap()));
    }
    if !has_type(json.get("decoder"), "ByteLevel") || !has_type(json.get("pre_tokenizer"), "ByteLevel") {
        problems.push("tokenizer.json: not a byte-level tokenizer".into());
    }
    if json.get("model").and_then(|m| m.get("dropout")).is_some_and(|d| d.as_f64().is_some_and(|d| d != 0.0)) {
        problems.push("tokenizer.json: dropout makes encoding random".into());
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

fn take_vocab(json: &Map<String, Value>) -> Result<HashMap<String, i32>, String> {
    let vocab = json.get("model").and_then(|m| m.get("vocab")).and_then(Value::as_object);
    let vocab = vocab.ok_or("tokenizer.json: no model.vocab")?;
    let entry = |(t, id): (&String, &Value)| match id.as_i64() {
        Some(id) if (0..MAX_IDS).contains(&id) => Ok((t.clone(), id as i32)),
        _ => Err(format!("tokenizer.json: vocabulary entry {t:?} has id {id}")),
    };
    vocab.iter().map(entry).collect()
}

/// All added tokens of both files; every contradiction is a problem.
fn merge_added(
    json: &Map<String, Value>,
    config: &Map<String, Value>,
    vocab: &HashMap<String, i32>,
) -> Result<AddedTokens, Vec<String>> {
    let (mut problems, mut tokens) = (Vec::new(), Vec::<AddedToken>::new());
    let empty = Vec::new();
    for t in json.get("added_tokens").and_then(Value::as_array).unwrap_or(&empty) {
        read_added("tokenizer.json", t.get("id").and_then(Value::as_i64), t, &mut tokens, &mut problems);
    }
    let none = Map::new();
    for (id, t) in config.get("added_tokens_decoder").and_then(Value::as_object).unwrap_or(&none) {
        read_added("tokenizer_config.json", id.parse().ok(), t, &mut tokens, &mut problems);
    }
    let by_id: HashMap<i32, &String> = vocab.iter().map(|(t, &id)| (id, t)).collect();
    for t in &tokens {
        match (by_id.get(&t.id), vocab.get(&t.content)) {
            (Some(v), _) if **v != t.content => {
                problems.push(format!("added token {:?} has id {}, which is {v:?} in the vocabulary", t.content, t.id))
            }
            (None, Some(id)) => {
                problems.push(format!("added token {:?} has id {}, in the vocabulary {id}", t.content, t.id))
            }
            _ => {}
        }
    }
    if problems.is_empty() {
        Ok(AddedTokens::new(tokens))
    } else {
        Err(problems)
    }
}

fn read_added(file: &str, id: Option<i64>, t: &Value, tokens: &mut Vec<AddedToken>, problems: &mut Vec<String>) {
    let content = t.get("content").and_then(Value::as_str).unwrap_or("");
    let Some(id) = id.filter(|id| (0..MAX_IDS).contains(id) && !content.is_empty()) else {
        problems.push(format!("{file}: added token without a valid id and content: {t}"));
        return;
    };
    let flag = |name| t.get(name).and_then(Value::as_bool).unwrap_or(false);
    let token = AddedToken {
        id: id as i32,
        content: content.into(),
        special: flag("special"),
        lstrip: flag("lstrip"),
        rstrip: flag("rstrip"),
        single_word: flag("single_word"),
    };
    let same = tokens.iter_mut().find(|o| o.id == token.id || o.content == token.content);
    match same {
        // The later file's flags hold, as in the reference.
        Some(o) if o.id == token.id && o.content == token.content => *o = token,
        Some(o) => problems.push(format!(
            "{file}: added token {:?} = {} contradicts {:?} = {}",
            token.content, token.id, o.content, o.id
        )),
        None => tokens.push(token),
    }
}

/// The bytes of each id of the vocabulary: GPT-2's byte alphabet reversed.
fn ordinary_table(vocab: &HashMap<String, i32>) -> Vec<Entry> {
    let alphabet = byte_alphabet();
    let size = vocab.values().max().map_or(0, |m| *m as usize + 1);
    let mut table = vec![Entry::default(); size];
    for (text, &id) in vocab {
        let bytes: Option<Vec<u8>> = text.chars().map(|c| alphabet.get(&c).copied()).collect();
        table[id as usize] = Entry { bytes: bytes.unwrap_or_else(|| text.clone().into_bytes()), kind: 1 };
    }
    table
}

fn byte_alphabet() -> HashMap<char, u8> {
    let printable = |b: &u8| matches!(*b, 33..=126 | 161..=172 | 174..=255);
    let mut next = 256;
    let mut char_of = |b: u8| {
        if printable(&b) {
            return b as char;
        }
        next += 1;
        char::from_u32(next - 1).unwrap()
    };
    (0..=255).map(|b| (char_of(b), b)).collect()
}

/// Model, normalizer and pre-tokenizer of tokenizer.json; no added tokens, nothing that cuts or pads.
fn ordinary_model(json: &mut Map<String, Value>) -> Result<tokenizers::Tokenizer, String> {
    let bad = |part: &str, e: serde_json::Error| format!("tokenizer.json: {part}: {e}");
    let mut model = json.remove("model").unwrap_or_default();
    model.as_object_mut().and_then(|m| m.remove("type"));
    let model: BPE = serde_json::from_value(model).map_err(|e| bad("model", e))?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    let mut part = |name: &str| json.remove(name).unwrap_or_default().to_string();
    let normalizer: Option<NormalizerWrapper> =
        serde_json::from_str(&part("normalizer")).map_err(|e| bad("normalizer", e))?;
    let pre_tokenizer: Option<PreTokenizerWrapper> =
        serde_json::from_str(&part("pre_tokenizer")).map_err(|e| bad("pre_tokenizer", e))?;
    tokenizer.with_normalizer(normalizer).map_err(|e| format!("tokenizer.json: normalizer: {e}"))?;
    tokenizer.with_pre_tokenizer(pre_tokenizer);
    Ok(tokenizer)
}
