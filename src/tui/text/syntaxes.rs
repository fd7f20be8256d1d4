//! The tables of the syntax highlighter, one entry for each language.

/// What the lexer knows about a language.
#[derive(Debug)]
pub(super) struct Syntax {
    /// Names after the fence of a code block.
    names: &'static [&'static str],
    /// What begins a comment to the end of the line.
    pub(super) line_comments: &'static [&'static str],
    /// Strings and block comments; the first that matches applies.
    pub(super) literals: &'static [Literal],
    /// Reserved words, divided by spaces.
    keywords: &'static str,
    /// Built-in types, divided by spaces.
    types: &'static str,
    /// Whether words like `String` are types.
    upper_types: bool,
    /// Whether words before `:` and `=` are keys.
    pub(super) has_keys: bool,
    /// Whether keywords may be written in capitals.
    ignores_case: bool,
    /// Whether `'a` may be a lifetime.
    pub(super) has_lifetimes: bool,
    /// Whether words after `<` are tags.
    pub(super) has_tags: bool,
}

impl Syntax {
    /// Returns whether a word is reserved.
    pub(super) fn is_keyword(&self, word: &str) -> bool {
        self.contains(self.keywords, word)
    }

    /// Returns whether a word names a type.
    pub(super) fn is_type(&self, word: &str) -> bool {
        let mixed_case = || word.starts_with(char::is_uppercase) && word.contains(char::is_lowercase);
        self.contains(self.types, word) || (self.upper_types && mixed_case())
    }

    fn contains(&self, words: &str, word: &str) -> bool {
        let same = |known: &str| if self.ignores_case { known.eq_ignore_ascii_case(word) } else { known == word };
        words.split(' ').any(same)
    }
}

/// A string or a block comment.
#[derive(Debug)]
pub(super) struct Literal {
    /// Its first characters.
    pub(super) begin: &'static str,
    /// Its last characters.
    end: &'static str,
    /// Whether a backslash escapes the end.
    escapes: bool,
    /// Whether it may continue in the next line.
    pub(super) spans_lines: bool,
    /// Whether it is a comment.
    pub(super) is_comment: bool,
}

impl Literal {
    /// Returns the bytes up to and with the end of the literal.
    pub(super) fn end_in(&self, text: &str) -> Option<usize> {
        let mut from = 0;
        loop {
            let rest = text.get(from..)?;
            let end = rest.find(self.end)?;
            match rest.find('\\') {
                Some(escape) if self.escapes && escape < end => {
                    let escaped = rest.get(escape + 1..)?.chars().next()?;
                    from += escape + 1 + escaped.len_utf8();
                }
                Some(_) | None => return Some(from + end + self.end.len()),
            }
        }
    }
}

/// Finds a language by its name in lower case.
pub(super) fn find(name: &str) -> Option<&'static Syntax> {
    SYNTAXES.iter().find(|syntax| syntax.names.contains(&name))
}

const fn comment(begin: &'static str, end: &'static str) -> Literal {
    Literal { begin, end, escapes: false, spans_lines: true, is_comment: true }
}

const fn string(quote: &'static str) -> Literal {
    Literal { begin: quote, end: quote, escapes: true, spans_lines: false, is_comment: false }
}

const fn long_string(quote: &'static str) -> Literal {
    Literal { begin: quote, end: quote, escapes: true, spans_lines: true, is_comment: false }
}

const fn raw_string(begin: &'static str, end: &'static str) -> Literal {
    Literal { begin, end, escapes: false, spans_lines: true, is_comment: false }
}

const BASE: Syntax = Syntax {
    names: &[],
    line_comments: &["//"],
    literals: C_LITERALS,
    keywords: "",
    types: "",
    upper_types: false,
    has_keys: false,
    ignores_case: false,
    has_lifetimes: false,
    has_tags: false,
};

const C_LITERALS: &[Literal] = &[comment("/*", "*/"), string("\""), string("'")];
const PYTHON_LITERALS: &[Literal] = &[long_string("\"\"\""), long_string("'''"), string("\""), string("'")];

const SYNTAXES: &[Syntax] = &[
    Syntax {
        names: &["rust", "rs"],
        literals: &[
            comment("/*", "*/"),
            raw_string("r###\"", "\"###"),
            raw_string("r##\"", "\"##"),
            raw_string("r#\"", "\"#"),
            raw_string("r\"", "\""),
            long_string("\""),
            string("'"),
        ],
        keywords: RUST_KEYWORDS,
        types: RUST_TYPES,
        upper_types: true,
        has_lifetimes: true,
        ..BASE
    },
    Syntax {
        names: &["python", "py", "python3", "pyi"],
        line_comments: &["#"],
        literals: PYTHON_LITERALS,
        keywords: PYTHON_KEYWORDS,
        types: "int str float bool list dict set tuple bytes object self cls",
        upper_types: true,
        ..BASE
    },
    Syntax {
        names: &["javascript", "js", "jsx", "mjs", "cjs", "typescript", "ts", "tsx"],
        literals: &[comment("/*", "*/"), string("\""), string("'"), long_string("`")],
        keywords: JS_KEYWORDS,
        types: "string number boolean any unknown never object symbol bigint",
        upper_types: true,
        ..BASE
    },
    Syntax {
        names: &["go", "golang"],
        literals: &[comment("/*", "*/"), string("\""), string("'"), raw_string("`", "`")],
        keywords: GO_KEYWORDS,
        types: GO_TYPES,
        ..BASE
    },
    Syntax {
        names: &["c", "h", "cpp", "c++", "cc", "cxx", "hpp", "objc", "arduino"],
        keywords: C_KEYWORDS,
        types: C_TYPES,
        ..BASE
    },
    Syntax {
        names: &["java", "kotlin", "kt", "scala", "groovy", "swift", "dart"],
        literals: &[comment("/*", "*/"), long_string("\"\"\""), string("\""), string("'")],
        keywords: JAVA_KEYWORDS,
        types: "int long short byte char float double boolean",
        upper_types: true,
        ..BASE
    },
    Syntax {
        names: &["csharp", "cs", "c#"],
        literals: &[comment("/*", "*/"), raw_string("@\"", "\""), string("\""), string("'")],
        keywords: CSHARP_KEYWORDS,
        types: "int long short byte char float double decimal bool string object",
        upper_types: true,
        ..BASE
    },
    Syntax {
        names: &["sh", "bash", "shell", "zsh", "fish", "console", "shellsession", "dockerfile", "makefile", "make"],
        line_comments: &["#"],
        literals: &[long_string("\""), raw_string("'", "'")],
        keywords: SH_KEYWORDS,
        ..BASE
    },
    Syntax {
        names: &["json", "jsonc", "json5", "jsonl"],
        literals: &[comment("/*", "*/"), string("\"")],
        keywords: "true false null",
        has_keys: true,
        ..BASE
    },
    Syntax {
        names: &["yaml", "yml"],
        line_comments: &["#"],
        literals: &[string("\""), raw_string("'", "'")],
        keywords: "true false null yes no on off",
        has_keys: true,
        ..BASE
    },
    Syntax {
        names: &["toml", "ini", "conf", "properties"],
        line_comments: &["#", ";"],
        literals: &[long_string("\"\"\""), raw_string("'''", "'''"), string("\""), raw_string("'", "'")],
        keywords: "true false",
        has_keys: true,
        ..BASE
    },
    Syntax {
        names: &["sql", "postgres", "postgresql", "mysql", "sqlite"],
        line_comments: &["--"],
        literals: &[comment("/*", "*/"), raw_string("'", "'"), string("\"")],
        keywords: SQL_KEYWORDS,
        types: SQL_TYPES,
        ignores_case: true,
        ..BASE
    },
    Syntax {
        names: &["html", "xml", "svg", "xhtml", "vue", "svelte"],
        line_comments: &[],
        literals: &[comment("<!--", "-->"), raw_string("\"", "\"")],
        has_keys: true,
        has_tags: true,
        ..BASE
    },
    Syntax {
        names: &["css", "scss", "less", "sass"],
        keywords: "important media import keyframes font supports charset include mixin",
        has_keys: true,
        ..BASE
    },
    Syntax {
        names: &["ruby", "rb", "elixir", "ex", "perl", "pl", "r", "julia"],
        line_comments: &["#"],
        literals: &[comment("=begin", "=end"), long_string("\""), long_string("'")],
        keywords: RUBY_KEYWORDS,
        upper_types: true,
        ..BASE
    },
];

const RUST_KEYWORDS: &str = "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move \
    mut pub ref return self static struct super trait true type union unsafe use where while yield";

const RUST_TYPES: &str = "bool char f32 f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize Self";

const PYTHON_KEYWORDS: &str = "False None True and as assert async await break case class continue def del elif else except finally for from \
    global if import in is lambda match nonlocal not or pass raise return try while with yield";

const JS_KEYWORDS: &str = "abstract as async await break case catch class const constructor continue debugger declare default delete do \
    else enum export extends false finally for from function get if implements import in infer instanceof \
    interface is keyof let namespace new null of private protected public readonly return satisfies set static \
    super switch this throw true try type typeof undefined var void while with yield";

const GO_KEYWORDS: &str = "break case chan const continue default defer else fallthrough false for func go goto if import interface iota \
    map nil package range return select struct switch true type var";

const GO_TYPES: &str = "any bool byte comparable complex64 complex128 error float32 float64 int int8 int16 int32 int64 rune string \
    uint uint8 uint16 uint32 uint64 uintptr";

const C_KEYWORDS: &str = "alignas alignof asm auto break case catch class concept const consteval constexpr constinit const_cast \
    continue co_await co_return co_yield decltype default define delete do dynamic_cast elif else endif enum error \
    explicit export extern false final for friend goto if ifdef ifndef include inline mutable namespace new \
    noexcept nullptr operator override pragma private protected public register reinterpret_cast requires restrict \
    return sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef \
    typeid typename undef union using virtual volatile while NULL";

const C_TYPES: &str = "bool char char8_t char16_t char32_t double float int int8_t int16_t int32_t int64_t intptr_t long ptrdiff_t \
    short signed size_t ssize_t string uint8_t uint16_t uint32_t uint64_t uintptr_t unsigned vector void wchar_t";

const JAVA_KEYWORDS: &str = "abstract as assert async await break by case catch class companion const continue data def default defer do \
    else enum extends extension false final finally for fun func get given goto guard if implements import in \
    inline instanceof interface internal is it lateinit let match mutating native new nil null object open \
    operator override package private protected protocol public record repeat required return sealed set some \
    static struct super suspend switch synchronized this throw throws trait transient true try typealias val var \
    void volatile when where while with yield";

const CSHARP_KEYWORDS: &str = "abstract as async await base break case catch checked class const continue default delegate do else enum event \
    explicit extern false finally fixed for foreach get goto if implicit in init interface internal is lock nameof \
    namespace new null operator out override params partial private protected public readonly record ref required \
    return sealed set sizeof stackalloc static struct switch this throw true try typeof unchecked unsafe using \
    value var virtual void volatile when where while with yield";

const SH_KEYWORDS: &str = "alias break case cd continue do done echo elif else end esac eval exec exit export false fi for function if in \
    local printf read readonly return set shift source sudo test then trap true unset until while ADD ARG CMD COPY \
    ENTRYPOINT ENV EXPOSE FROM LABEL RUN USER VOLUME WORKDIR";

const SQL_KEYWORDS: &str = "add all alter analyze and any as asc begin between by cascade case check column commit conflict constraint \
    create cross current database default delete desc distinct do drop else end except exists explain false \
    foreign from full function grant group having if in index inner insert intersect into is join key last lateral \
    left like limit materialized natural not nothing null nulls offset on or order outer over partition pragma \
    primary procedure recursive references replace restrict returning revoke right rollback row rows savepoint \
    select set table temporary then to transaction trigger true truncate union unique update using vacuum values \
    view when where window with without";

const SQL_TYPES: &str = "bigint bigserial blob bool boolean bytea char date datetime decimal double float int integer interval json \
    jsonb numeric real serial smallint text time timestamp timestamptz tinyint uuid varchar";

const RUBY_KEYWORDS: &str = "alias and attr_accessor attr_reader begin break case class def defined defmodule defp do else elsif end ensure \
    extend false for foreach fn function if in include library local module my mutable next nil not or our private \
    protected public raise redo require require_relative rescue retry return self struct sub super then true undef \
    unless until use using when where while yield";
