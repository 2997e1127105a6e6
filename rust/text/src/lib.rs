//! The C ABI of tutti_text.h. No panic leaves it: every entry point catches.
mod added;
mod marks;
mod python;
mod template;
mod tokenizer;

use std::panic::{catch_unwind, AssertUnwindSafe};
use template::Template;
use tokenizer::Tokenizer;

#[repr(C)]
pub struct Bytes {
    data: *mut u8,
    size: usize,
}

#[repr(C)]
pub struct Ids {
    data: *mut i32,
    size: usize,
}

#[repr(C)]
pub struct Prompt {
    ids: Ids,
    text: Bytes,
    in_reasoning: bool,
}

impl Bytes {
    fn new(v: Vec<u8>) -> Self {
        let size = v.len();
        Bytes { data: Box::into_raw(v.into_boxed_slice()).cast(), size }
    }
}

impl Ids {
    fn new(v: Vec<i32>) -> Self {
        let size = v.len();
        Ids { data: Box::into_raw(v.into_boxed_slice()).cast(), size }
    }
}

/// The bytes of the caller as text; a broken sequence becomes U+FFFD.
unsafe fn text<'a>(data: *const u8, size: usize) -> std::borrow::Cow<'a, str> {
    let bytes = if size == 0 { &[] } else { std::slice::from_raw_parts(data, size) };
    String::from_utf8_lossy(bytes)
}

/// Runs `f`; a failure or a panic becomes the text of `error`.
unsafe fn guarded<T>(error: *mut Bytes, f: impl FnOnce() -> Result<T, String>) -> Option<T> {
    let message = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(message)) => message,
        Err(panic) => {
            let what = panic.downcast_ref::<&str>().map(|s| s.to_string());
            let what = what.or_else(|| panic.downcast_ref::<String>().cloned());
            format!("internal error in the text library: {}", what.unwrap_or_default())
        }
    };
    *error = Bytes::new(message.into_bytes());
    None
}

/// # Safety
/// `b` came from this library and was not freed.
#[no_mangle]
pub unsafe extern "C" fn tutti_bytes_free(b: Bytes) {
    if !b.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(b.data, b.size)));
    }
}

/// # Safety
/// `ids` came from this library and was not freed.
#[no_mangle]
pub unsafe extern "C" fn tutti_ids_free(ids: Ids) {
    if !ids.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(ids.data, ids.size)));
    }
}

/// # Safety
/// Pointers are valid for their sizes; `config` may be null.
#[no_mangle]
pub unsafe extern "C" fn tutti_tokenizer_new(
    json: *const u8,
    json_size: usize,
    config: *const u8,
    config_size: usize,
    error: *mut Bytes,
) -> *mut Tokenizer {
    let made = guarded(error, || {
        let config = if config.is_null() { None } else { Some(text(config, config_size)) };
        Tokenizer::new(&text(json, json_size), config.as_deref()).map_err(|e| e.join("\n"))
    });
    made.map_or(std::ptr::null_mut(), |t| Box::into_raw(Box::new(t)))
}

/// # Safety
/// `t` came from tutti_tokenizer_new and was not freed.
#[no_mangle]
pub unsafe extern "C" fn tutti_tokenizer_free(t: *mut Tokenizer) {
    if !t.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(t))));
    }
}

/// # Safety
/// `t` is alive, the other pointers are valid.
#[no_mangle]
pub unsafe extern "C" fn tutti_tokenizer_encode(
    t: *const Tokenizer,
    data: *const u8,
    size: usize,
    with_added: bool,
    ids: *mut Ids,
    error: *mut Bytes,
) -> bool {
    let encoded = guarded(error, || (*t).encode(&text(data, size), with_added));
    encoded.map(|e| *ids = Ids::new(e)).is_some()
}

/// # Safety
/// `t` is alive, the other pointers are valid.
#[no_mangle]
pub unsafe extern "C" fn tutti_tokenizer_table(t: *const Tokenizer, table: *mut Bytes, error: *mut Bytes) -> bool {
    let made = guarded(error, || {
        let mut out = Vec::new();
        for entry in (*t).table() {
            out.push(entry.kind);
            out.extend_from_slice(&(entry.bytes.len() as u32).to_ne_bytes());
            out.extend_from_slice(&entry.bytes);
        }
        Ok(out)
    });
    made.map(|b| *table = Bytes::new(b)).is_some()
}

/// # Safety
/// `t` is alive.
#[no_mangle]
pub unsafe extern "C" fn tutti_tokenizer_eos(t: *const Tokenizer) -> i32 {
    (*t).eos().unwrap_or(-1)
}

/// # Safety
/// Pointers are valid for their sizes; the tokenizer is alive.
#[no_mangle]
pub unsafe extern "C" fn tutti_template_new(
    source: *const u8,
    size: usize,
    tokenizer: *const Tokenizer,
    special_tokens_in_text: bool,
    error: *mut Bytes,
) -> *mut Template {
    let made = guarded(error, || {
        Template::new(&text(source, size), &*tokenizer, special_tokens_in_text).map_err(|e| e.join("\n"))
    });
    made.map_or(std::ptr::null_mut(), |t| Box::into_raw(Box::new(t)))
}

/// # Safety
/// `t` came from tutti_template_new and was not freed.
#[no_mangle]
pub unsafe extern "C" fn tutti_template_free(t: *mut Template) {
    if !t.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(t))));
    }
}

/// # Safety
/// `t` and `tokenizer` are alive, the other pointers are valid.
#[no_mangle]
pub unsafe extern "C" fn tutti_template_render(
    t: *const Template,
    tokenizer: *const Tokenizer,
    context: *const u8,
    size: usize,
    open: bool,
    prompt: *mut Prompt,
    error: *mut Bytes,
) -> bool {
    let rendered = guarded(error, || (*t).render(&*tokenizer, &text(context, size), open));
    rendered
        .map(|r| {
            let text = Bytes::new(r.text.into_bytes());
            *prompt = Prompt { ids: Ids::new(r.ids), text, in_reasoning: r.in_reasoning };
        })
        .is_some()
}

/// # Safety
/// `t` is alive.
#[no_mangle]
pub unsafe extern "C" fn tutti_template_accepts_late_system(t: *const Template) -> bool {
    (*t).accepts_late_system()
}

/// # Safety
/// `t` is alive, the other pointers are valid.
#[no_mangle]
pub unsafe extern "C" fn tutti_template_variables(t: *const Template, names: *mut Bytes, error: *mut Bytes) -> bool {
    let joined = guarded(error, || Ok((*t).variables().join("\n")));
    joined.map(|j| *names = Bytes::new(j.into_bytes())).is_some()
}
