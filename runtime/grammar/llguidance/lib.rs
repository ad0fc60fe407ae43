//! The functions of llguidance.h, and one more.
pub use llguidance::ffi;
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::earley::lexerspec::LexemeIdx;
use std::ffi::{c_char, CStr};

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

/// Returns 0, or -1 with a message that ends in a zero byte.
///
/// # Safety
/// `kind` and `text` end in a zero byte, and `message` has `size` bytes, at
/// least one.
#[no_mangle]
pub unsafe extern "C" fn qwen_check_grammar(
    kind: *const c_char,
    text: *const c_char,
    limits: &ParserLimits,
    message: *mut c_char,
    size: usize,
) -> i32 {
    let checked = llguidance::panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
        check(CStr::from_ptr(kind).to_str()?, CStr::from_ptr(text).to_str()?, limits.clone())
    }));
    let Err(error) = checked else { return 0 };
    let text = error.to_string();
    let length = text.len().min(size - 1);
    std::ptr::copy_nonoverlapping(text.as_ptr() as *const c_char, message, length);
    *message.add(length) = 0;
    -1
}
