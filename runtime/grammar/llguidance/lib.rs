//! The functions of llguidance.h, and others that it lacks.
pub use llguidance::ffi;
mod text;

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::earley::lexerspec::LexemeIdx;
use llguidance::toktrie::{TokRxInfo, TokTrie, INVALID_TOKEN};
use std::ffi::{c_char, CStr};
use text::{Form, Text};

/// Makes the first states of a grammar's lexer as llguidance does, which counts
/// no fuel there. Refuses expressions that no text matches: an answer could
/// begin one and not go on.
fn check(kind: &str, text: &str, limits: ParserLimits) -> anyhow::Result<()> {
    let grammar = TopLevelGrammar::from_tagged_str(kind, text)?;
    let (_, lexer) = GrammarInit::Serialized(grammar).to_internal(None, limits.clone())?;
    let mut states = lexer.to_regex_vec(&mut limits.clone())?;
    states.set_fuel(limits.initial_lexer_fuel);
    states.set_max_states(limits.max_lexer_states);
    let first = states.initial_state(&lexer.all_lexemes());
    let possible = states.state_desc(first).possible.clone();
    for index in 0..lexer.lexemes.len() {
        let lexeme = LexemeIdx::new(index);
        if !possible.contains(lexeme) && !lexer.skip_by_class.contains(&lexeme) {
            anyhow::bail!("no text matches an expression");
        }
    }
    for byte in 0..=u8::MAX {
        states.transition(first, byte);
        if let Some(error) = states.get_error() {
            anyhow::bail!(error);
        }
    }
    Ok(())
}

/// Where a message goes, which ends in a zero byte; `size` is at least one.
#[repr(C)]
pub struct Message {
    text: *mut c_char,
    size: usize,
}

/// What `work` returns, or nothing and a message.
///
/// # Safety
/// `message` has its bytes.
unsafe fn reported<T>(message: Message, work: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
    let done = llguidance::panic_utils::catch_unwind(std::panic::AssertUnwindSafe(work));
    done.inspect_err(|error| {
        let text = error.to_string();
        let length = text.len().min(message.size - 1);
        std::ptr::copy_nonoverlapping(text.as_ptr() as *const c_char, message.text, length);
        *message.text.add(length) = 0;
    })
    .ok()
}

/// Returns 0, or -1 with a message.
///
/// # Safety
/// `kind` and `text` end in a zero byte.
#[no_mangle]
pub unsafe extern "C" fn qwen_check_grammar(
    kind: *const c_char,
    text: *const c_char,
    limits: &ParserLimits,
    message: Message,
) -> i32 {
    let done = reported(message, || {
        check(CStr::from_ptr(kind).to_str()?, CStr::from_ptr(text).to_str()?, limits.clone())
    });
    done.map_or(-1, |()| 0)
}

/// The tokens of a model. `bytes` has their texts one behind the other.
///
/// # Safety
/// There are `count` lengths.
#[no_mangle]
pub unsafe extern "C" fn qwen_new_tokens(bytes: *const u8, lengths: *const u32, count: usize) -> *mut TokTrie {
    let mut at = bytes;
    let words: Vec<Vec<u8>> = std::slice::from_raw_parts(lengths, count)
        .iter()
        .map(|&length| {
            let word = std::slice::from_raw_parts(at, length as usize).to_vec();
            at = at.add(length as usize);
            word
        })
        .collect();
    Box::into_raw(Box::new(TokTrie::from(&TokRxInfo::new(count as u32, INVALID_TOKEN), &words)))
}

/// # Safety
/// `tokens` comes from qwen_new_tokens.
#[no_mangle]
pub unsafe extern "C" fn qwen_free_tokens(tokens: *mut TokTrie) {
    drop(Box::from_raw(tokens));
}

/// A text in an answer: its grammar, and where it stands (Form). Returns null
/// with a message.
///
/// # Safety
/// All strings end in a zero byte.
#[no_mangle]
pub unsafe extern "C" fn qwen_new_text(
    kind: *const c_char,
    text: *const c_char,
    before: *const c_char,
    end: *const c_char,
    is_json: bool,
    limits: &ParserLimits,
    message: Message,
) -> *mut Text {
    let done = reported(message, || {
        let form = Form {
            before: CStr::from_ptr(before).to_bytes().to_vec(),
            end: CStr::from_ptr(end).to_bytes().to_vec(),
            is_json,
        };
        Text::new(CStr::from_ptr(kind).to_str()?, CStr::from_ptr(text).to_str()?, form, limits.clone())
    });
    done.map_or(std::ptr::null_mut(), |text| Box::into_raw(Box::new(text)))
}

/// A copy, which shares nothing with the text.
#[no_mangle]
pub extern "C" fn qwen_copy_text(text: &Text) -> *mut Text {
    Box::into_raw(Box::new(text.copy()))
}

/// # Safety
/// `text` comes from qwen_new_text or qwen_copy_text.
#[no_mangle]
pub unsafe extern "C" fn qwen_free_text(text: *mut Text) {
    drop(Box::from_raw(text));
}

/// Takes away tokens that may not come from a set of `count` words. Returns 0,
/// or -1 with a message.
///
/// # Safety
/// There are `count` words.
#[no_mangle]
pub unsafe extern "C" fn qwen_filter_text(
    text: &mut Text,
    tokens: &TokTrie,
    words: *mut u32,
    count: usize,
    message: Message,
) -> i32 {
    let done = reported(message, || text.filter(tokens, std::slice::from_raw_parts_mut(words, count)));
    done.map_or(-1, |()| 0)
}

/// Goes on with a token. Returns 1, or 0 if no text will come or go on, or -1
/// with a message.
///
/// # Safety
/// The token has `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn qwen_accept_text(text: &mut Text, token: *const u8, size: usize, message: Message) -> i32 {
    let done = reported(message, || text.accept(std::slice::from_raw_parts(token, size)));
    done.map_or(-1, i32::from)
}
