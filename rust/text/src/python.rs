//! What Python's interpreter gives templates and minijinja lacks or does in another way: json.dumps, str(float), str methods,
//! Python's idea of whitespace, the clock.
use crate::marks::{Marks, Unit};
use minijinja::value::{from_args, Kwargs, Tuple, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// What the template of this thread's render raised.
    pub static RAISED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Methods of Python's str, list and dict that templates may try and that are not here.
const LACKING: [&str; 23] = [
    "center",
    "encode",
    "expandtabs",
    "format_map",
    "isdecimal",
    "isidentifier",
    "isprintable",
    "istitle",
    "maketrans",
    "translate",
    "rindex",
    "append",
    "extend",
    "insert",
    "remove",
    "pop",
    "clear",
    "sort",
    "reverse",
    "copy",
    "update",
    "setdefault",
    "popitem",
];

pub fn lacks_method(name: &str) -> bool {
    LACKING.contains(&name)
}

pub fn install(env: &mut Environment<'static>, marks: &Arc<Marks>) {
    let own = marks.clone();
    env.add_filter("tojson", move |v: &Value, kw: Kwargs| tojson(&own, v, kw));
    env.add_filter("trim", trim);
    env.add_filter("string", |v: &Value| match v.as_str() {
        Some(_) => v.clone(),
        None => Value::from(py_str(v)),
    });
    env.add_test("sequence", |v: &Value| {
        matches!(v.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
    });
    env.add_test("iterable", |v: &Value| !v.is_none() && v.try_iter().is_ok());
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        RAISED.with(|r| *r.borrow_mut() = Some(message.clone()));
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    env.add_function("strftime_now", strftime_now);
    env.set_unknown_method_callback(method);
    env.set_formatter(|out, state, value| match float_of(value) {
        Some(f) => out.write_str(&py_float(f)).map_err(Error::from),
        None => minijinja::escape_formatter(out, state, value),
    });
}

fn float_of(v: &Value) -> Option<f64> {
    (v.kind() == ValueKind::Number && !v.is_integer()).then(|| f64::try_from(v.clone()).ok()).flatten()
}

fn py_str(v: &Value) -> String {
    float_of(v).map_or_else(|| v.to_string(), py_float)
}

/// repr(float): the shortest digits; exponent form below 1e-4 and from 1e16 on.
pub fn py_float(f: f64) -> String {
    if f.is_nan() {
        return "nan".into();
    }
    if f.is_infinite() {
        return if f > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let s = format!("{f:e}");
    let (digits, exponent) = s.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    if f != 0.0 && !(-4..16).contains(&exponent) {
        return format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    let s = format!("{f}");
    if s.contains('.') {
        s
    } else {
        s + ".0"
    }
}

struct Json<'m> {
    marks: &'m Marks,
    indent: Option<usize>,
    separators: (String, String),
    ascii: bool,
    sort: bool,
    out: String,
}

/// json.dumps(ensure_ascii=False), with the keyword arguments that the reference's tojson takes.
fn tojson(marks: &Marks, v: &Value, kw: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kw.get("indent")?;
    let ascii: Option<bool> = kw.get("ensure_ascii")?;
    let sort: Option<bool> = kw.get("sort_keys")?;
    let separators: Option<Value> = kw.get("separators")?;
    kw.assert_all_used()?;
    let separators: Vec<String> = match separators.filter(|s| !s.is_none()) {
        Some(s) => s.try_iter()?.map(|x| x.to_string()).collect(),
        None => vec![(if indent.is_some() { "," } else { ", " }).into(), ": ".into()],
    };
    let [item, key] = <[String; 2]>::try_from(separators)
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "tojson: separators are two strings"))?;
    let (ascii, sort) = (ascii.unwrap_or(false), sort.unwrap_or(false));
    let mut json = Json { marks, indent, separators: (item, key), ascii, sort, out: String::new() };
    json.dump(v, 0)?;
    Ok(Value::from_safe_string(json.out))
}

impl Json<'_> {
    fn line(&mut self, level: usize) {
        if let Some(n) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', n * level));
        }
    }

    fn dump(&mut self, v: &Value, level: usize) -> Result<(), Error> {
        match v.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if v.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&json_number(v)),
            ValueKind::String => self.string(v.as_str().unwrap_or("")),
            ValueKind::Map => self.map(v, level)?,
            ValueKind::Seq | ValueKind::Iterable => {
                let items = v.try_iter()?.collect::<Vec<_>>();
                self.list(items, ('[', ']'), level, |json, x| json.dump(x, level + 1))?
            }
            kind => {
                let message = format!("Object of type {kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn map(&mut self, v: &Value, level: usize) -> Result<(), Error> {
        let mut items = Vec::new();
        for k in v.try_iter()? {
            items.push((json_key(&k), v.get_item(&k)?));
        }
        if self.sort {
            items.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.list(items, ('{', '}'), level, |json, (k, x)| {
            json.string(k);
            json.out.push_str(&json.separators.1.clone());
            json.dump(x, level + 1)
        })
    }

    fn list<T>(
        &mut self,
        items: Vec<T>,
        brackets: (char, char),
        level: usize,
        each: impl Fn(&mut Self, &T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(brackets.0);
        for (i, x) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(&self.separators.0.clone());
            }
            self.line(level + 1);
            each(self, x)?;
        }
        if !items.is_empty() {
            self.line(level);
        }
        self.out.push(brackets.1);
        Ok(())
    }

    fn string(&mut self, s: &str) {
        self.out.push('"');
        if self.ascii {
            let marks = self.marks;
            for unit in marks.units(s) {
                match unit {
                    Unit::Plain(c) if c as u32 > 0x7e => self.escape(c),
                    Unit::Plain(c) => self.character(c),
                    Unit::Mark(c) => self.out.push(c),
                }
            }
        } else {
            s.chars().for_each(|c| self.character(c));
        }
        self.out.push('"');
    }

    fn character(&mut self, c: char) {
        match c {
            '"' => self.out.push_str("\\\""),
            '\\' => self.out.push_str("\\\\"),
            '\n' => self.out.push_str("\\n"),
            '\r' => self.out.push_str("\\r"),
            '\t' => self.out.push_str("\\t"),
            '\x08' => self.out.push_str("\\b"),
            '\x0c' => self.out.push_str("\\f"),
            c if (c as u32) < 0x20 => self.escape(c),
            c => self.out.push(c),
        }
    }

    fn escape(&mut self, c: char) {
        for unit in c.encode_utf16(&mut [0; 2]) {
            self.out.push_str(&format!("\\u{unit:04x}"));
        }
    }
}

fn json_number(v: &Value) -> String {
    match float_of(v) {
        Some(f) if f.is_nan() => "NaN".into(),
        Some(f) if f.is_infinite() => (if f > 0.0 { "Infinity" } else { "-Infinity" }).into(),
        Some(f) => py_float(f),
        None => v.to_string(),
    }
}

fn json_key(k: &Value) -> String {
    match k.kind() {
        ValueKind::None => "null".into(),
        ValueKind::Bool => (if k.is_true() { "true" } else { "false" }).into(),
        ValueKind::Number => json_number(k),
        _ => k.to_string(),
    }
}

/// str.isspace: Unicode's White_Space and the four separators U+001C to U+001F.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

fn strip<'s>(s: &'s str, chars: Option<&str>, left: bool, right: bool) -> &'s str {
    let drop = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    let s = if left { s.trim_start_matches(drop) } else { s };
    if right {
        s.trim_end_matches(drop)
    } else {
        s
    }
}

fn trim(v: &Value, chars: Option<Cow<'_, str>>) -> Value {
    let text = v.as_str().map_or_else(|| Cow::Owned(py_str(v)), Cow::Borrowed);
    Value::from(strip(&text, chars.as_deref(), true, true))
}

fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match value.as_str().map(|s| string_method(s, name, args)) {
        Some(Ok(Some(v))) => Ok(v),
        Some(Err(e)) => Err(e),
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn string_method(s: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let one = || from_args::<(&str,)>(args).map(|a| a.0);
    let whitespace = args.is_empty() || args[0].is_none();
    Ok(Some(match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Value::from(strip(s, chars, name != "rstrip", name != "lstrip"))
        }
        "isspace" => Value::from(!s.is_empty() && s.chars().all(is_space)),
        "split" if whitespace && args.len() < 2 => {
            Value::from_iter(s.split(is_space).filter(|p| !p.is_empty()).map(Value::from))
        }
        "splitlines" if args.is_empty() => Value::from_iter(split_lines(s).map(Value::from)),
        "rsplit" if !whitespace => {
            let (separator, limit): (&str, Option<i64>) = from_args(args)?;
            let limit = limit.filter(|&n| n >= 0).map_or(usize::MAX, |n| n as usize + 1);
            let mut parts: Vec<Value> = s.rsplitn(limit, separator).map(Value::from).collect();
            parts.reverse();
            Value::from(parts)
        }
        "partition" => {
            let separator = one()?;
            let (a, b) = s.split_once(separator).unwrap_or((s, ""));
            Value::from(Tuple::from([a, if a.len() < s.len() { separator } else { "" }, b].map(Value::from)))
        }
        "rpartition" => {
            let separator = one()?;
            let found = s.rsplit_once(separator);
            let (a, b) = found.unwrap_or(("", s));
            Value::from(Tuple::from([a, if found.is_some() { separator } else { "" }, b].map(Value::from)))
        }
        "removeprefix" => Value::from(s.strip_prefix(one()?).unwrap_or(s)),
        "removesuffix" => Value::from(s.strip_suffix(one()?).unwrap_or(s)),
        "index" => match s.find(one()?) {
            Some(i) => Value::from(s[..i].chars().count()),
            None => return Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
        },
        "casefold" => Value::from(s.to_lowercase()),
        "swapcase" => Value::from(s.chars().map(swap_case).collect::<String>()),
        "zfill" | "ljust" | "rjust" => pad(s, name, args)?,
        _ => return Ok(None),
    }))
}

fn swap_case(c: char) -> String {
    if c.is_uppercase() {
        c.to_lowercase().collect()
    } else {
        c.to_uppercase().collect()
    }
}

fn pad(s: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (usize, Option<&str>) = from_args(args)?;
    if width > 10_000 {
        return Err(Error::new(ErrorKind::InvalidOperation, "width is too large"));
    }
    let fill = if name == "zfill" { "0" } else { fill.unwrap_or(" ") };
    let padding = fill.repeat(width.saturating_sub(s.chars().count()));
    let sign = if name == "zfill" && s.starts_with(['+', '-']) { 1 } else { 0 };
    Ok(Value::from(if name == "ljust" {
        format!("{s}{padding}")
    } else {
        format!("{}{padding}{}", &s[..sign], &s[sign..])
    }))
}

/// str.splitlines: all of Unicode's line ends, "\r\n" is one.
fn split_lines(s: &str) -> impl Iterator<Item = &str> {
    let is_end =
        |c: char| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut rest = s;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(i) = rest.find(is_end) else { return Some(std::mem::take(&mut rest)) };
        let line = &rest[..i];
        let end = if rest[i..].starts_with("\r\n") { 2 } else { rest[i..].chars().next().map_or(0, char::len_utf8) };
        rest = &rest[i + end..];
        Some(line)
    })
}

/// datetime.now().strftime(format)
fn strftime_now(format: String) -> Result<String, Error> {
    let bad = || Error::new(ErrorKind::InvalidOperation, "strftime_now: bad format");
    if format.is_empty() {
        return Ok(format);
    }
    let format = std::ffi::CString::new(format).map_err(|_| bad())?;
    let mut buffer = [0u8; 512];
    // SAFETY: tm is filled by localtime_r before it is read; strftime writes at most the buffer's size.
    let n = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut tm);
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &tm)
    };
    if n == 0 {
        return Err(bad());
    }
    Ok(String::from_utf8_lossy(&buffer[..n]).into_owned())
}
