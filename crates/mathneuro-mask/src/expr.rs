//! A small language for combining mask sets: `math - (race | mmlu)`.
//!
//! From the weakest to the strongest binding: `|` (or), `^` (exclusive or), `&` (and), `-` (and-not), `!` (not): as in
//! Rust and Python.
//! Operators of one level group from the left.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{MaskError, Result, shorten};
use crate::set::MaskSet;

/// Parentheses and negations may nest this deep.
const MAX_DEPTH: usize = 200;

/// A parsed mask expression.
///
/// ```
/// use std::collections::BTreeMap;
/// use mathneuro_mask::{Expr, MaskMeta, MaskSet, ParamMask};
///
/// # fn main() -> Result<(), mathneuro_mask::MaskError> {
/// let set = |bits: [usize; 2]| -> Result<MaskSet, mathneuro_mask::MaskError> {
///     let mut set = MaskSet::new(MaskMeta::default());
///     set.insert("w", &[2, 2], ParamMask::from_indices(4, bits)?)?;
///     Ok(set)
/// };
/// let sets = BTreeMap::from([
///     ("math".to_owned(), set([0, 1])?),
///     ("race".to_owned(), set([1, 2])?),
///     ("mmlu".to_owned(), set([2, 3])?),
/// ]);
/// let isolated = Expr::parse("math - (race | mmlu)")?.eval(&sets)?;
/// assert_eq!(isolated.get("w").map(|mask| mask.iter_ones().collect()), Some(vec![0]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expr {
    root: Node,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Name(String),
    Not(Box<Node>),
    /// An operator with its right sides, grouped from the left. A list, not a tree: a chain may be long, and what
    /// recurs over nodes must not run out of stack.
    Chain(Box<Node>, char, Vec<Node>),
}

impl Expr {
    /// Reads an expression. Names are letters, digits, `_` and `.`; a name with other characters stands in
    /// double quotes.
    ///
    /// # Errors
    /// [`MaskError::Expression`] with the column.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser {
            text,
            chars: text.char_indices().collect(),
            next: 0,
            depth: 0,
        };
        let root = parser.level(0)?;
        match parser.peek() {
            None => Ok(Self {
                root,
                text: text.to_owned(),
            }),
            Some(c) => Err(parser.error(format!("unexpected `{c}`"))),
        }
    }

    /// The names of the sets that the expression combines.
    pub fn names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        let mut open = vec![&self.root];
        while let Some(node) = open.pop() {
            match node {
                Node::Name(name) => {
                    names.insert(name.as_str());
                }
                Node::Not(inner) => open.push(inner),
                Node::Chain(first, _, rest) => {
                    open.push(first);
                    open.extend(rest);
                }
            }
        }
        names
    }

    /// Combines the sets; the result's formula is the expression.
    ///
    /// # Errors
    /// [`MaskError::SetNotFound`] for a name that is not there, [`MaskError::SetMismatch`] for sets of other
    /// parameters.
    pub fn eval(&self, sets: &BTreeMap<String, MaskSet>) -> Result<MaskSet> {
        if let Some(name) = self
            .names()
            .into_iter()
            .find(|name| !sets.contains_key(*name))
        {
            return Err(MaskError::SetNotFound {
                name: name.to_owned(),
                known: shorten(sets.keys()),
            });
        }
        let mut result = eval(&self.root, sets)?;
        result.meta_mut().formula = Some(self.text.trim().to_owned());
        Ok(result)
    }
}

fn eval(node: &Node, sets: &BTreeMap<String, MaskSet>) -> Result<MaskSet> {
    match node {
        Node::Name(name) => {
            let mut set = sets[name].clone();
            // The result's formula is the expression; without this every step would put one together.
            set.meta_mut().formula = None;
            Ok(set)
        }
        Node::Not(inner) => Ok(!eval(inner, sets)?),
        Node::Chain(first, operator, rest) => {
            let mut result = eval(first, sets)?;
            for node in rest {
                // A name on the right is borrowed: no copy of its masks is made.
                let owned;
                let right = match node {
                    Node::Name(name) => &sets[name],
                    node => {
                        owned = eval(node, sets)?;
                        &owned
                    }
                };
                match operator {
                    '|' => result.or_assign(right)?,
                    '^' => result.xor_assign(right)?,
                    '-' => result.and_not_assign(right)?,
                    _ => result.and_assign(right)?,
                }
            }
            Ok(result)
        }
    }
}

const LEVELS: [char; 4] = ['|', '^', '&', '-'];

struct Parser<'t> {
    text: &'t str,
    chars: Vec<(usize, char)>,
    next: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        while self
            .chars
            .get(self.next)
            .is_some_and(|(_, c)| c.is_whitespace())
        {
            self.next += 1;
        }
        self.chars.get(self.next).map(|&(_, c)| c)
    }

    fn error(&self, problem: String) -> MaskError {
        MaskError::Expression {
            text: self.text.to_owned(),
            column: self.next + 1,
            problem,
        }
    }

    fn level(&mut self, level: usize) -> Result<Node> {
        let Some(&operator) = LEVELS.get(level) else {
            return self.unary();
        };
        let first = self.level(level + 1)?;
        let mut rest = Vec::new();
        while self.peek() == Some(operator) {
            self.next += 1;
            rest.push(self.level(level + 1)?);
        }
        Ok(match rest.is_empty() {
            true => first,
            false => Node::Chain(Box::new(first), operator, rest),
        })
    }

    fn unary(&mut self) -> Result<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        let node = match self.peek() {
            Some('!') => {
                self.next += 1;
                Node::Not(Box::new(self.unary()?))
            }
            Some('(') => {
                self.next += 1;
                let inner = self.level(0)?;
                if self.peek() != Some(')') {
                    return Err(self.error("`)` is missing".to_owned()));
                }
                self.next += 1;
                inner
            }
            Some('"') => {
                self.next += 1;
                let name = self.take_while(|c| c != '"');
                if self.chars.get(self.next).is_none() {
                    return Err(self.error("the closing `\"` is missing".to_owned()));
                }
                self.next += 1;
                Node::Name(name)
            }
            Some(c) if is_name(c) => Node::Name(self.take_while(is_name)),
            Some(c) => return Err(self.error(format!("a name, `(` or `!` is needed, not `{c}`"))),
            None => {
                return Err(self.error("a name, `(` or `!` is needed, not the end".to_owned()));
            }
        };
        self.depth -= 1;
        Ok(node)
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let mut name = String::new();
        while let Some(&(_, c)) = self.chars.get(self.next).filter(|(_, c)| wanted(*c)) {
            name.push(c);
            self.next += 1;
        }
        name
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '.'
}
