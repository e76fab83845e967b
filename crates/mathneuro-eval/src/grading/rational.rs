//! Exact rational numbers as they stand in text.

/// A fraction in lowest terms with a positive denominator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rational {
    top: i128,
    bottom: i128,
}

/// Digits that a number may have on either side of its point; longer ones are not read.
const MAX_DIGITS: usize = 18;

impl Rational {
    pub fn new(top: i128, bottom: i128) -> Option<Self> {
        if bottom == 0 {
            return None;
        }
        let divisor = gcd(top.unsigned_abs(), bottom.unsigned_abs()) as i128;
        let sign = bottom.signum();
        Some(Self {
            top: sign * top / divisor,
            bottom: sign * bottom / divisor,
        })
    }

    /// `12` and `5` as 12.5.
    fn decimal(whole: &str, fraction: &str) -> Option<Self> {
        if whole.len() > MAX_DIGITS || fraction.len() > MAX_DIGITS {
            return None;
        }
        let digits = format!("0{whole}{fraction}");
        Self::new(
            digits.parse().ok()?,
            10i128.checked_pow(fraction.len() as u32)?,
        )
    }

    fn divide(self, other: Self) -> Option<Self> {
        Self::new(
            self.top.checked_mul(other.bottom)?,
            self.bottom.checked_mul(other.top)?,
        )
    }

    fn add(self, other: Self) -> Option<Self> {
        let left = self.top.checked_mul(other.bottom)?;
        let right = other.top.checked_mul(self.bottom)?;
        Self::new(
            left.checked_add(right)?,
            self.bottom.checked_mul(other.bottom)?,
        )
    }

    fn negate(self) -> Self {
        Self {
            top: -self.top,
            bottom: self.bottom,
        }
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

impl std::fmt::Display for Rational {
    /// Whole numbers and finite decimals as such, everything else as `a/b`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mut scaled, mut bottom, mut places) =
            (self.top.unsigned_abs(), self.bottom as u128, 0);
        while bottom != 1 {
            let step = if bottom.is_multiple_of(10) {
                10
            } else if bottom.is_multiple_of(5) {
                5
            } else if bottom.is_multiple_of(2) {
                2
            } else {
                return write!(f, "{}/{}", self.top, self.bottom);
            };
            bottom /= step;
            match scaled.checked_mul(10 / step) {
                Some(larger) => scaled = larger,
                None => return write!(f, "{}/{}", self.top, self.bottom),
            }
            places += 1;
        }
        let sign = if self.top < 0 { "-" } else { "" };
        if places == 0 {
            return write!(f, "{sign}{scaled}");
        }
        let digits = format!("{scaled:0>width$}", width = places + 1);
        let (whole, fraction) = digits.split_at(digits.len() - places);
        write!(f, "{sign}{whole}.{fraction}")
    }
}

/// Marks that carry no meaning inside a number are taken out, and every minus becomes `-`.
pub fn plain(text: &str) -> String {
    let text = text
        .replace("**", "")
        .replace("{,}", ",")
        .replace("\\!", "")
        .replace("\\$", "$")
        .replace("\\%", "%")
        .replace(['\u{2212}', '\u{fe63}', '\u{ff0d}'], "-");
    let chars: Vec<char> = text.replace("\\,", "\u{2009}").chars().collect();
    let mut plain = String::with_capacity(text.len());
    for (i, &c) in chars.iter().enumerate() {
        let thousands = matches!(c, '\u{2009}' | '\u{202f}' | '\u{a0}')
            && i > 0
            && chars[i - 1].is_ascii_digit()
            && digits(&chars, i + 1) == 3;
        if !thousands {
            plain.push(c);
        }
    }
    plain
}

/// How many digits stand from here on.
fn digits(chars: &[char], start: usize) -> usize {
    let rest = chars.get(start..).unwrap_or_default();
    rest.iter().take_while(|c| c.is_ascii_digit()).count()
}

/// All numbers of a text that went through [`plain`], in order.
pub fn numbers(text: &str) -> Vec<Rational> {
    let chars: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut place = 0;
    while place < chars.len() {
        match number_at(&chars, place) {
            Some((number, end)) => {
                found.extend(number);
                place = end;
            }
            None => place += 1,
        }
    }
    found
}

/// The number that is the whole of this text but for a unit sign.
pub fn whole(text: &str) -> Option<Rational> {
    let text = plain(text);
    let chars: Vec<char> = text.trim().trim_end_matches(['%', '$']).chars().collect();
    let (number, end) = number_at(&chars, 0)?;
    if end == chars.len() { number } else { None }
}

/// The number that begins exactly here and the place behind it; the number is `None` when it is too long to be read.
fn number_at(chars: &[char], start: usize) -> Option<(Option<Rational>, usize)> {
    let at = |place: usize| chars.get(place).copied().unwrap_or('\0');
    let before = if start == 0 { '\0' } else { at(start - 1) };
    let mut place = start;
    let mut negative = false;
    if at(place) == '-' {
        // `5-3` and `x-3` are differences, `= -3` is a negative number.
        if before.is_alphanumeric() || before == ')' {
            return None;
        }
        negative = true;
        place += 1;
    } else if before.is_alphanumeric() {
        // `x2` is a name; and a number is read from its first digit on or not at all.
        return None;
    }
    if matches!(at(place), '$' | '€' | '£') {
        place += 1;
        if !negative && at(place) == '-' {
            negative = true;
            place += 1;
        }
        while at(place) == ' ' {
            place += 1;
        }
    }
    let signed = |number: Option<Rational>| {
        number.map(|number| if negative { number.negate() } else { number })
    };
    if let Some((fraction, end)) = latex_fraction(chars, place) {
        return Some((signed(fraction), end));
    }
    let (number, mut end) = decimal_at(chars, place)?;
    let Some(first) = number else {
        return Some((None, end));
    };
    if let Some((fraction, after)) = latex_fraction(chars, end) {
        return Some((signed(fraction.and_then(|part| first.add(part))), after));
    }
    if at(end) == '/' && at(end + 1).is_ascii_digit() {
        let (below, after) = decimal_at(chars, end + 1)?;
        return Some((signed(below.and_then(|below| first.divide(below))), after));
    }
    // A mixed number: `2 1/2`.
    if at(end) == ' ' && first.bottom == 1 {
        let width = digits(chars, end + 1);
        let slash = end + 1 + width;
        if width > 0 && at(slash) == '/' && at(slash + 1).is_ascii_digit() {
            let (top, _) = decimal_at(chars, end + 1)?;
            let (below, after) = decimal_at(chars, slash + 1)?;
            let part = top.zip(below).and_then(|(top, below)| top.divide(below));
            end = after;
            return Some((signed(part.and_then(|part| first.add(part))), end));
        }
    }
    Some((signed(Some(first)), end))
}

/// `\frac{a}{b}` and `\dfrac{a}{b}` of whole numbers.
fn latex_fraction(chars: &[char], start: usize) -> Option<(Option<Rational>, usize)> {
    let rest: String = chars.get(start..)?.iter().take(64).collect();
    let name = ["\\frac", "\\dfrac", "\\tfrac"]
        .into_iter()
        .find(|name| rest.starts_with(name))?;
    let mut place = start + name.len();
    let mut parts = [0i128; 2];
    for part in &mut parts {
        if chars.get(place) != Some(&'{') {
            return None;
        }
        let close = place + chars[place..].iter().position(|c| *c == '}')?;
        let inner: String = chars[place + 1..close].iter().collect();
        *part = inner.trim().parse::<i64>().ok()?.into();
        place = close + 1;
    }
    Some((Rational::new(parts[0], parts[1]), place))
}

/// Digits, with commas between thousands, and a fraction behind a point.
fn decimal_at(chars: &[char], start: usize) -> Option<(Option<Rational>, usize)> {
    let mut end = start + digits(chars, start);
    let mut whole: String = chars[start.min(chars.len())..end].iter().collect();
    if (1..=3).contains(&whole.len()) {
        while chars.get(end) == Some(&',') && digits(chars, end + 1) == 3 {
            whole.extend(&chars[end + 1..end + 4]);
            end += 4;
        }
    }
    let places = digits(chars, end + 1);
    let mut fraction = String::new();
    if chars.get(end) == Some(&'.') && places > 0 {
        fraction.extend(&chars[end + 1..end + 1 + places]);
        end += 1 + places;
    }
    (!whole.is_empty() || !fraction.is_empty()).then(|| (Rational::decimal(&whole, &fraction), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        numbers(&plain(text))
            .iter()
            .map(Rational::to_string)
            .collect()
    }

    #[test]
    fn numbers_of_a_text() {
        for (text, expected) in [
            ("16 - 3 = 13", vec!["16", "3", "13"]),
            ("5-3 is 2, not -2", vec!["5", "3", "2", "-2"]),
            ("$1,234.50 or -$5 or $-5", vec!["1234.5", "-5", "-5"]),
            ("1, 2,3 and 12,3456", vec!["1", "2", "3", "12", "3456"]),
            ("1/3, 2 1/2, 6/4", vec!["1/3", "2.5", "1.5"]),
            (
                "\\frac{1}{2} and 3\\frac{1}{4}, -\\dfrac{2}{3}",
                vec!["0.5", "3.25", "-2/3"],
            ),
            ("x2 + y34 + .5", vec!["0.5"]),
            (
                "1\u{2009}234\u{202f}567 and 1\u{2009}23",
                vec!["1234567", "1", "23"],
            ),
            ("7/0", vec![]),
            ("1234567890123456789012345678901234567890", vec![]),
            ("3.10", vec!["3.1"]),
            ("18.", vec!["18"]),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
        assert_eq!(whole("25%").map(|n| n.to_string()).as_deref(), Some("25"));
        assert_eq!(whole("25 apples"), None);
        assert_eq!(whole(""), None);
    }
}
