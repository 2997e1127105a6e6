//! The checkpoint's chat template: compiled once, rendered per request, the prompt as token ids.
use crate::added::Piece;
use crate::marks::Marks;
use crate::python::{self, is_space, RAISED};
use crate::tokenizer::Tokenizer;
use indexmap::IndexMap;
use minijinja::machinery::{get_compiled_template, Instruction, Instructions};
use minijinja::{Environment, Error, UndefinedBehavior, Value};
use serde_json::{json, Map, Value as Json};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

const NAME: &str = "chat_template";
// Steps of one render: instructions and 64 bytes of text copied. A template takes some 200 instructions for a message.
const FUEL: u64 = 1_000_000;
const FUEL_PER_BYTE: u64 = 16; // of the request
const RECURSION: usize = 200;

pub struct Template {
    env: Environment<'static>,
    marks: Arc<Marks>,
    variables: Vec<String>,
    named: Vec<(String, Value)>, // eos_token and the like, unless the request has them
    accepts_late_system: bool,
    splits_thinking: bool,
}

pub struct Rendered {
    pub ids: Vec<i32>,
    pub text: String,
    pub in_reasoning: bool,
}

impl Template {
    pub fn new(source: &str, tokenizer: &Tokenizer, special_tokens_in_text: bool) -> Result<Self, Vec<String>> {
        let marks = Arc::new(Marks::new(tokenizer.added(), source, !special_tokens_in_text).map_err(|e| vec![e])?);
        let mut env = environment(&marks);
        let source = without_generation_tags(&source.replace("\r\n", "\n").replace('\r', "\n"));
        env.add_template_owned(NAME, source).map_err(|e| vec![describe(&e, &marks)])?;
        let variables = check_names(&env)?;
        let named = tokenizer.named().iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect::<Vec<_>>();
        let variables = variables.into_iter().filter(|v| !named.iter().any(|n| n.0 == *v)).collect();
        let mut t = Template { env, marks, variables, named, accepts_late_system: false, splits_thinking: false };
        t.accepts_late_system = t.probe_late_system();
        t.splits_thinking = !special_tokens_in_text && t.probe_splits_thinking();
        Ok(t)
    }

    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    pub fn accepts_late_system(&self) -> bool {
        self.accepts_late_system
    }

    /// `open`: the prompt ends after the content of the last message.
    pub fn render(&self, tokenizer: &Tokenizer, context: &str, open: bool) -> Result<Rendered, String> {
        let fuel = FUEL + FUEL_PER_BYTE * context.len() as u64;
        let mut context: Map<String, Json> =
            serde_json::from_str(context).map_err(|e| format!("template variables: {e}"))?;
        if self.splits_thinking {
            split_thinking(&mut context);
        }
        context.values_mut().for_each(|v| self.mark(v));
        let space = if open { Some(self.append_sentinel(&mut context)?) } else { None };
        let mut text = self.run(&context, fuel)?;
        if let Some(space) = space {
            self.cut_at_sentinel(&mut text, &space)?;
        }
        self.tokenize(tokenizer, &text)
    }

    /// Strings and keys of a value of the request, marked.
    fn mark(&self, v: &mut Json) {
        match v {
            Json::String(s) => {
                if let Cow::Owned(marked) = self.marks.mark(s) {
                    *s = marked;
                }
            }
            Json::Array(a) => a.iter_mut().for_each(|x| self.mark(x)),
            Json::Object(m) => {
                m.values_mut().for_each(|x| self.mark(x));
                if m.keys().any(|k| matches!(self.marks.mark(k), Cow::Owned(_))) {
                    *m = std::mem::take(m).into_iter().map(|(k, x)| (self.marks.mark(&k).into_owned(), x)).collect();
                }
            }
            _ => {}
        }
    }

    fn run(&self, context: &Map<String, Json>, fuel: u64) -> Result<String, String> {
        let named = self.named.iter().filter(|n| !context.contains_key(&n.0)).cloned();
        let own = context.iter().map(|(k, v)| (k.clone(), value(v)));
        let values = map(named.chain(own).map(|(k, v)| (Value::from(k), v)));
        RAISED.with(|r| r.borrow_mut().take());
        let mut env = self.env.clone(); // shares everything but the fuel
        env.set_fuel(Some(fuel));
        let template = env.get_template(NAME).map_err(|e| describe(&e, &self.marks))?;
        template.render(values).map_err(|e| match RAISED.with(|r| r.borrow_mut().take()) {
            Some(message) => self.marks.unmark(&message).into_owned(),
            None => describe(&e, &self.marks),
        })
    }

    fn tokenize(&self, tokenizer: &Tokenizer, text: &str) -> Result<Rendered, String> {
        let mut ids = Vec::new();
        let mut last_added = None;
        for piece in tokenizer.added().split(text) {
            match piece {
                Piece::Text(t) => tokenizer.encode_ordinary(&self.marks.unmark(t), &mut ids)?,
                Piece::Token(id) => {
                    last_added = Some(id);
                    ids.push(id);
                }
            }
        }
        let text = self.marks.unmark(text).into_owned();
        let in_reasoning = match tokenizer.added().find("<think>") {
            Some(think) => last_added == Some(think.id),
            None => text.trim_end().ends_with("<think>"),
        };
        Ok(Rendered { ids, text, in_reasoning })
    }

    /// Puts the sentinel and a space behind the last content; returns the whitespace that the content ended with.
    fn append_sentinel(&self, context: &mut Map<String, Json>) -> Result<String, String> {
        let last = context.get_mut("messages").and_then(Json::as_array_mut).and_then(|m| m.last_mut());
        let last = last.and_then(Json::as_object_mut).ok_or("no message to continue")?;
        let content = last.entry("content").or_insert(Json::Null);
        let end = json!({"type": "text", "text": ""});
        if let Json::Array(parts) = content {
            if !parts.last().is_some_and(|p| p.get("text").is_some_and(Json::is_string)) {
                parts.push(end);
            }
        } else if !content.is_string() {
            *content = Json::String(String::new());
        }
        let target = match content {
            Json::Array(parts) => parts.last_mut().unwrap().get_mut("text").unwrap(),
            other => other,
        };
        let text = target.as_str().unwrap_or("");
        let kept = text.trim_end_matches(is_space);
        let space = if kept.is_empty() { "" } else { &text[kept.len()..] }.to_string();
        *target = Json::String(format!("{}{} ", if kept.is_empty() { "" } else { text }, self.marks.sentinel()));
        Ok(space)
    }

    fn cut_at_sentinel(&self, text: &mut String, space: &str) -> Result<(), String> {
        let sentinel = self.marks.sentinel();
        let at = text.rfind(sentinel).ok_or("the template does not render the content of the last message")?;
        let trimmed = !text[at + sentinel.len_utf8()..].starts_with(' ');
        text.truncate(at);
        if trimmed && text.ends_with(space) {
            text.truncate(at - space.len());
        }
        Ok(())
    }

    /// The rendered messages of a probe; its text holds no literals of a request, so it goes in unmarked.
    fn probe(&self, messages: Json) -> Option<String> {
        let context = json!({"messages": messages, "add_generation_prompt": true});
        self.run(context.as_object()?, FUEL).ok()
    }

    fn probe_late_system(&self) -> bool {
        let text = self.probe(json!([
            {"role": "user", "content": "first-user-text"},
            {"role": "system", "content": "late-system-text"},
            {"role": "user", "content": "second-user-text"}]));
        let Some(text) = text else { return false };
        let order = ["first-user-text", "late-system-text", "second-user-text"].map(|s| text.find(s));
        order.iter().all(Option::is_some) && order.is_sorted()
    }

    /// Whether the template itself takes "<think>…</think>" out of an assistant's content.
    fn probe_splits_thinking(&self) -> bool {
        let user = json!({"role": "user", "content": "question"});
        let joined = json!({"role": "assistant", "content": "<think>\nthought-text\n</think>\n\nanswer-text"});
        let apart = json!({"role": "assistant", "reasoning_content": "thought-text", "content": "answer-text"});
        let joined = self.probe(json!([user, joined]));
        joined.is_some() && joined == self.probe(json!([user, apart]))
    }
}

fn value(v: &Json) -> Value {
    match v {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Value::from(i),
            (None, Some(u)) => Value::from(u),
            _ => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(s) => Value::from(s.as_str()),
        Json::Array(a) => a.iter().map(value).collect(),
        Json::Object(m) => map(m.iter().map(|(k, x)| (Value::from(k.as_str()), value(x)))),
    }
}

fn map(items: impl Iterator<Item = (Value, Value)>) -> Value {
    Value::from_object(items.collect::<IndexMap<Value, Value>>())
}

/// What the templates do to an assistant's content that holds "</think>", before its tags become ordinary text.
fn split_thinking(context: &mut Map<String, Json>) {
    let Some(messages) = context.get_mut("messages").and_then(Json::as_array_mut) else { return };
    for message in messages.iter_mut().filter_map(Json::as_object_mut) {
        let reasons = message.get("reasoning_content").and_then(Json::as_str).is_some_and(|r| !r.is_empty());
        if reasons || message.get("role").and_then(Json::as_str) != Some("assistant") {
            continue;
        }
        let Some(content) = message.get("content").and_then(text_of) else { continue };
        let (Some((before, _)), Some((_, after))) = (content.split_once("</think>"), content.rsplit_once("</think>"))
        else {
            continue;
        };
        let thought = before.trim_end_matches('\n').rsplit("<think>").next().unwrap_or("").trim_start_matches('\n');
        message.insert("reasoning_content".into(), thought.into());
        message.insert("content".into(), after.trim_start_matches('\n').into());
    }
}

/// A content of nothing but text.
fn text_of(content: &Json) -> Option<String> {
    match content {
        Json::String(s) => Some(s.clone()),
        Json::Array(parts) => parts.iter().map(|p| p.get("text")?.as_str()).collect(),
        _ => None,
    }
}

fn environment(marks: &Arc<Marks>) -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("a valid syntax"));
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_recursion_limit(RECURSION);
    python::install(&mut env, marks);
    env
}

/// The reference marks an assistant's tokens by {% generation %} blocks; they render as if they were not there.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(i) = rest.find("{%") {
        let Some(end) = rest[i..].find("%}").map(|e| i + e) else { break };
        let inner = &rest[i + 2..end];
        let word = inner.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        let block = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => word,
        };
        out.push_str(&rest[..i + 2]);
        out.push_str(&if block == word { inner.to_string() } else { inner.replacen(word, block, 1) });
        out.push_str("%}");
        rest = &rest[end + 2..];
    }
    out + rest
}

/// The free variables; filters, tests, functions and methods that don't exist are problems.
fn check_names(env: &Environment<'static>) -> Result<Vec<String>, Vec<String>> {
    let template = env.get_template(NAME).map_err(|e| vec![e.to_string()])?;
    let globals: HashSet<String> = env.globals().map(|g| g.0.to_string()).collect();
    let free = template.undeclared_variables(false);
    let free: BTreeSet<String> = free.into_iter().filter(|v| !globals.contains(v)).collect();
    let compiled = get_compiled_template(&template);
    let mut problems = BTreeSet::new();
    for instructions in std::iter::once(&compiled.instructions).chain(compiled.blocks.values()) {
        check_instructions(env, instructions, &free, &mut problems);
    }
    if problems.is_empty() {
        Ok(free.into_iter().collect())
    } else {
        Err(problems.into_iter().collect())
    }
}

fn check_instructions(
    env: &Environment,
    code: &Instructions,
    free: &BTreeSet<String>,
    problems: &mut BTreeSet<String>,
) {
    let mut i = 0;
    while let Some(instruction) = code.get(i) {
        let line = code.get_line(i).unwrap_or(0);
        match instruction {
            Instruction::ApplyFilter(name, ..) if !exists(env, "filter", name) => {
                problems.insert(format!("line {line}: unknown filter {name:?}"));
            }
            Instruction::PerformTest(name, ..) if !exists(env, "test", name) => {
                problems.insert(format!("line {line}: unknown test {name:?}"));
            }
            Instruction::CallFunction(name, _) if free.contains(*name) => {
                problems.insert(format!("line {line}: unknown function {name:?}"));
            }
            Instruction::CallMethod(name, _) if python::lacks_method(name) => {
                problems.insert(format!("line {line}: unsupported method {name:?}"));
            }
            _ => {}
        }
        i += 1;
    }
}

fn exists(env: &Environment, kind: &str, name: &str) -> bool {
    let test = env.compile_expression_owned(format!("{name:?} is {kind}"));
    test.and_then(|e| e.eval(())).is_ok_and(|v| v.is_true())
}

/// An error of the interpreter for people, with the text of the request as it was.
fn describe(e: &Error, marks: &Marks) -> String {
    let what = match e.detail() {
        Some(detail) => format!("{}: {detail}", e.kind()),
        None => e.kind().to_string(),
    };
    let line = e.line().map_or(String::new(), |l| format!("line {l}: "));
    marks.unmark(&format!("{line}{what}")).into_owned()
}
