//! A text with a grammar of its own within an answer: the inside of a string of
//! JSON, or what stands between two tags. The grammar of the answer has any text
//! there. A `Text` follows the bytes of the answer, gives the parser of its own
//! grammar the bytes that they stand for, and takes away tokens that it refuses.
use anyhow::{bail, Result};
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::earley::perf::ParserPerfCounters;
use llguidance::earley::{BiasComputer, Parser, ParserRecognizer};
use llguidance::toktrie::{
    AnythingGoes, ApproximateTokEnv, Recognizer, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId,
};
use llguidance::{HashMap, Logger};
use std::sync::{Arc, Mutex, OnceLock};

/// Where a text stands, and how it is written.
#[derive(Clone)]
pub struct Form {
    /// What the answer has before the text, at least one byte.
    pub before: Vec<u8>,
    /// What the text ends before. No byte but the first is like the first.
    pub end: Vec<u8>,
    /// Whether the text is the inside of a string of JSON. `end` is its quote.
    pub is_json: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Escape {
    No,
    Begun,
    Hex { left: u8, value: u32 },
}

/// A place in a text.
#[derive(Clone, Copy)]
struct Inside {
    escape: Escape,
    /// Number of bytes of the end that have come. They may belong to the text.
    matched: usize,
    /// Whether they may belong to it, and whether it may end before them.
    goes_on: bool,
    may_end: bool,
}

/// A place in an answer.
#[derive(Clone, Copy)]
enum Place {
    /// Behind so many bytes of what stands before the text.
    Before(usize),
    Text(Inside),
    /// Behind the text, or in something else.
    Beside,
}

/// What reads the bytes that a text stands for.
trait Reader {
    fn may_push(&mut self, byte: u8) -> bool;
    /// Whether a byte may come; it has then come.
    fn push(&mut self, byte: u8) -> bool;
    fn may_end(&mut self) -> bool;
}

/// The byte that the next one of a string stands for, if that is complete;
/// nothing if it may not come.
fn unescape(escape: Escape, byte: u8) -> Option<(Escape, Option<u8>)> {
    let value = match (escape, byte) {
        (Escape::No, b'\\') => return Some((Escape::Begun, None)),
        (Escape::No, _) => byte,
        (Escape::Begun, b'u') => return Some((Escape::Hex { left: 4, value: 0 }, None)),
        (Escape::Begun, b'"' | b'\\') => byte,
        (Escape::Begun, b'b') => 8,
        (Escape::Begun, b'f') => 12,
        (Escape::Begun, b'n') => b'\n',
        (Escape::Begun, b'r') => b'\r',
        (Escape::Begun, b't') => b'\t',
        (Escape::Begun, _) => return None,
        (Escape::Hex { left, value }, _) => {
            let value = value * 16 + (byte as char).to_digit(16)?;
            if left > 1 {
                return Some((Escape::Hex { left: left - 1, value }, None));
            }
            numbers().find(|&number| u32::from(number) == value)?
        }
    };
    Some((Escape::No, Some(value)))
}

/// The characters that strings of llguidance have as numbers.
fn numbers() -> impl Iterator<Item = u8> {
    (0..0x20).chain([0x7f])
}

/// Whether what has begun may become a character that may come.
fn may_become(escape: Escape, reader: &mut impl Reader) -> bool {
    match escape {
        Escape::No => true,
        Escape::Begun => numbers().chain(*b"\"\\").any(|byte| reader.may_push(byte)),
        Escape::Hex { left, value } => numbers()
            .filter(|&number| u32::from(number) >> (4 * left) == value)
            .any(|byte| reader.may_push(byte)),
    }
}

impl Form {
    /// The place behind a byte of the answer; nothing if it may not come.
    fn step(&self, place: Place, byte: u8, reader: &mut impl Reader) -> Option<Place> {
        match place {
            Place::Before(count) if byte == self.before[count] => {
                Some(if count + 1 < self.before.len() {
                    Place::Before(count + 1)
                } else {
                    Place::Text(Inside { escape: Escape::No, matched: 0, goes_on: true, may_end: false })
                })
            }
            Place::Before(_) | Place::Beside => Some(Place::Beside),
            Place::Text(inside) => self.step_inside(inside, byte, reader),
        }
    }

    fn step_inside(&self, mut inside: Inside, byte: u8, reader: &mut impl Reader) -> Option<Place> {
        if byte == TokTrie::SPECIAL_TOKEN_MARKER {
            return None;
        }
        let is_plain = inside.escape == Escape::No;
        let mut value = Some(byte);
        if self.is_json {
            (inside.escape, value) = unescape(inside.escape, byte)?;
        }
        let Some(value) = value else {
            return may_become(inside.escape, reader).then_some(Place::Text(inside));
        };
        if is_plain && inside.matched > 0 && value == self.end[inside.matched] {
            inside.matched += 1;
        } else if !inside.goes_on {
            return None;
        } else {
            let begins = is_plain && value == self.end[0];
            inside.matched = usize::from(begins);
            inside.may_end = begins && reader.may_end();
        }
        if inside.matched == self.end.len() {
            return inside.may_end.then_some(Place::Beside);
        }
        inside.goes_on = inside.goes_on && reader.push(value);
        (inside.goes_on || inside.may_end).then_some(Place::Text(inside))
    }
}

/// Reads what has come.
impl Reader for Parser {
    fn may_push(&mut self, byte: u8) -> bool {
        self.validate_tokens(&[TokenId::from(byte)]) == 1
    }
    fn push(&mut self, byte: u8) -> bool {
        // A token of other bytes: these are no token of the text's parser.
        self.may_push(byte) && self.apply_token(&[byte], END).is_ok()
    }
    fn may_end(&mut self) -> bool {
        self.is_accepting()
    }
}

/// The end of a text, as a token of its parser. The others are bytes.
const END: TokenId = TokTrie::SPECIAL_TOKEN_MARKER as TokenId;

/// The tokens of the parsers of texts.
fn bytes() -> &'static TokEnv {
    static BYTES: OnceLock<TokEnv> = OnceLock::new();
    BYTES.get_or_init(|| {
        let mut words: Vec<Vec<u8>> = (0..TokTrie::SPECIAL_TOKEN_MARKER).map(|byte| vec![byte]).collect();
        words.push(vec![TokTrie::SPECIAL_TOKEN_MARKER, b'.']);
        let info = TokRxInfo::new(words.len() as u32, END);
        Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)))
    })
}

/// A byte that a walk has taken.
struct Taken {
    byte: u8,
    place: Place,
    /// The byte of the text that it has pushed.
    pushed: Option<u8>,
    /// The number of bytes of the text before its end, if the place is only one
    /// if the text may end behind them.
    unsure: Option<usize>,
}

/// A start of tokens that may come only if `text`, read from where the answer
/// is, may be the last of its text.
struct Unsure {
    path: Vec<u8>,
    text: Vec<u8>,
    place: Place,
}

/// Reads bytes ahead. Whether a text may end there shows only later.
struct Ahead<'a, 'b> {
    parser: Option<&'a mut ParserRecognizer<'b>>,
    /// Whether the text may end before all bytes.
    may_end: bool,
    /// Number of bytes that were read.
    count: usize,
    /// What the last byte did.
    pushed: Option<u8>,
    unsure: Option<usize>,
}

impl Reader for Ahead<'_, '_> {
    fn may_push(&mut self, byte: u8) -> bool {
        self.parser.as_mut().is_some_and(|parser| parser.byte_allowed(byte))
    }
    fn push(&mut self, byte: u8) -> bool {
        let may = self.parser.as_mut().is_some_and(|parser| parser.try_push_byte(byte));
        if may {
            self.pushed = Some(byte);
            self.count += 1;
        }
        may
    }
    fn may_end(&mut self) -> bool {
        if self.count > 0 {
            self.unsure = Some(self.count);
        }
        self.count > 0 || self.may_end
    }
}

/// Finds the tokens that may come.
struct Walk<'a, 'b> {
    form: &'a Form,
    /// Where the answer is.
    place: Place,
    ahead: Ahead<'a, 'b>,
    taken: Vec<Taken>,
    unsure: Vec<Unsure>,
}

impl Recognizer for Walk<'_, '_> {
    fn collapse(&mut self) {}
    fn trie_started(&mut self, label: &str) {
        if let Some(parser) = &mut self.ahead.parser {
            parser.trie_started(label);
        }
    }
    fn trie_finished(&mut self) {
        if let Some(parser) = &mut self.ahead.parser {
            parser.trie_finished();
        }
    }
    fn pop_bytes(&mut self, num: usize) {
        let rest = self.taken.len() - num;
        let pushed = self.taken.drain(rest..).filter(|taken| taken.pushed.is_some()).count();
        self.ahead.count -= pushed;
        if let Some(parser) = &mut self.ahead.parser {
            parser.pop_bytes(pushed);
        }
    }
    fn try_push_byte(&mut self, byte: u8) -> bool {
        let (place, unsure) = self.taken.last().map_or((self.place, None), |last| (last.place, last.unsure));
        self.ahead.pushed = None;
        self.ahead.unsure = unsure;
        let Some(next) = self.form.step(place, byte, &mut self.ahead) else { return false };
        let taken = Taken { byte, place: next, pushed: self.ahead.pushed, unsure: self.ahead.unsure };
        let needs_end = match next {
            Place::Text(inside) => !inside.goes_on,
            _ => matches!(place, Place::Text(_)),
        };
        let Some(count) = taken.unsure.filter(|_| needs_end) else {
            self.taken.push(taken);
            return true;
        };
        self.unsure.push(Unsure {
            path: self.taken.iter().map(|each| each.byte).chain([byte]).collect(),
            text: self.taken.iter().filter_map(|each| each.pushed).take(count).collect(),
            place: next,
        });
        false
    }
}

/// A walk over the tokens that begin with `start`.
struct Walker<'a> {
    form: &'a Form,
    place: Place,
    may_end: bool,
    start: &'a [u8],
    tokens: &'a TokTrie,
    /// Nothing before a walk.
    unsure: Mutex<Option<Vec<Unsure>>>,
}

impl BiasComputer for Walker<'_> {
    fn compute_bias(&self, parser: &mut ParserRecognizer<'_>, _: &[u8]) -> SimpleVob {
        let ahead = Ahead { parser: Some(parser), may_end: self.may_end, count: 0, pushed: None, unsure: None };
        let mut walk =
            Walk { form: self.form, place: self.place, ahead, taken: Vec::new(), unsure: Vec::new() };
        let mut set = self.tokens.alloc_token_set();
        self.tokens.add_bias(&mut walk, &mut set, self.start);
        *self.unsure.lock().unwrap() = Some(walk.unsure);
        set
    }
    fn trie(&self) -> &TokTrie {
        self.tokens
    }
}

/// A text of a grammar, up to some byte of the answer.
pub struct Text {
    form: Form,
    place: Place,
    parser: Parser,
    /// The tokens that may come where `parser` keeps a set, which lacks tokens
    /// that were unsure.
    kept: Option<SimpleVob>,
}

impl Text {
    pub fn new(kind: &str, text: &str, form: Form, limits: ParserLimits) -> Result<Self> {
        let grammar = GrammarInit::Serialized(TopLevelGrammar::from_tagged_str(kind, text)?);
        let (grammar, lexer) = grammar.to_internal(Some(bytes().clone()), limits.clone())?;
        if lexer.special_token_rx.is_some() || lexer.has_max_tokens {
            bail!("tokens and max_tokens have no meaning in the text of a tool");
        }
        let grammar = GrammarInit::Internal(grammar, lexer).to_cgrammar(
            None,
            &mut Logger::new(0, 0),
            limits.clone(),
            Vec::new(),
        )?;
        let parser = Parser::new(bytes().clone(), grammar, limits, Arc::new(ParserPerfCounters::new()))?;
        Ok(Self { form, place: Place::Before(0), parser, kept: None })
    }

    /// A copy that shares nothing with the text.
    pub fn copy(&self) -> Self {
        Self { form: self.form.clone(), place: self.place, parser: self.parser.deep_clone(), kept: self.kept.clone() }
    }

    /// Goes on with the bytes of a token. Returns whether the text may still come
    /// or go on.
    pub fn accept(&mut self, token: &[u8]) -> Result<bool> {
        for &byte in token {
            match self.form.step(self.place, byte, &mut self.parser) {
                Some(place) => self.place = place,
                None => bail!("the grammar of the text has no such token"),
            }
        }
        self.require_no_error()?;
        Ok(!matches!(self.place, Place::Beside))
    }

    /// Takes away tokens that may not come in the text. `words` is a set.
    pub fn filter(&mut self, tokens: &TokTrie, words: &mut [u32]) -> Result<()> {
        let form = &self.form;
        let start = match self.place {
            Place::Before(count) => &form.before[count..],
            Place::Text(_) => &[],
            Place::Beside => return Ok(()),
        };
        let follows = tokens.child_at_bytes(tokens.root(), start).is_some_and(|node| node.subtree_size() > 1);
        if !follows {
            return Ok(());
        }
        let place = start.iter().try_fold(self.place, |place, &byte| form.step(place, byte, &mut self.parser));
        let walker = Walker {
            form,
            place: place.unwrap_or(Place::Beside),
            may_end: self.parser.is_accepting(),
            start,
            tokens,
            unsure: Mutex::new(None),
        };
        // The parser keeps the set of a place that it comes to again, such as one in a
        // long text of one expression. With a start, it keeps none.
        let is_plain = matches!(self.place, Place::Text(inside) if inside.matched == 0 && inside.escape == Escape::No);
        let mut set = self.parser.compute_bias(&walker, if is_plain { &[] } else { &[0] });
        let unsure = walker.unsure.into_inner().unwrap();
        if let (None, Some(kept)) = (&unsure, &self.kept) {
            set.clone_from(kept);
        }
        let is_new = unsure.is_some();
        let mut ends = HashMap::default();
        for Unsure { path, text, place } in unsure.unwrap_or_default() {
            let parser = &mut self.parser;
            if *ends.entry(text).or_insert_with_key(|text| may_end_behind(parser, text)) {
                let ahead = Ahead { parser: None, may_end: false, count: 0, pushed: None, unsure: None };
                let mut walk = Walk { form, place, ahead, taken: Vec::new(), unsure: Vec::new() };
                tokens.add_bias(&mut walk, &mut set, &[start, &path].concat());
            }
        }
        if is_plain && is_new {
            self.kept = Some(set.clone());
        }
        self.require_no_error()?;
        if !start.is_empty() {
            // Tokens that do not reach the text.
            let mut reaching = tokens.alloc_token_set();
            tokens.add_bias(&mut AnythingGoes, &mut reaching, start);
            set.or(&reaching.negated());
        }
        for (word, may) in words.iter_mut().zip(set.as_slice()) {
            *word &= may;
        }
        Ok(())
    }

    fn require_no_error(&self) -> Result<()> {
        match self.parser.get_error() {
            Some(error) => bail!(error.message()),
            None => Ok(()),
        }
    }
}

/// Whether a text may go on with `text` and end.
fn may_end_behind(parser: &mut Parser, text: &[u8]) -> bool {
    let ids: Vec<TokenId> = text.iter().map(|&byte| TokenId::from(byte)).chain([END]).collect();
    parser.validate_tokens(&ids) == ids.len()
}
