//! Text from a trace is data: whoever made the trace wrote it.

/// Longest text in an answer, in characters.
const LONGEST: usize = 600;
/// Longest name of a process or thread; the kernel keeps 15 bytes of it.
const LONGEST_NAME: usize = 32;
/// Longest command line.
const LONGEST_COMMAND: usize = 160;

/// `text` without characters that act on whoever displays or reads it (control characters,
/// direction marks, zero-width and other invisible characters), cut to a sane length.
pub(crate) fn clean(text: &str) -> String {
    cut(text, LONGEST)
}

/// As [`clean`], for the name of a process or thread.
pub(crate) fn name(text: &str) -> String {
    cut(text, LONGEST_NAME)
}

/// As [`clean`], for a command line.
pub(crate) fn command_line(text: &str) -> String {
    cut(text, LONGEST_COMMAND)
}

/// As [`clean`], for why something is refused: what is too long is cut in the middle, because the
/// end says what would fit.
pub(crate) fn reason(text: &str) -> String {
    let kept: Vec<char> = kept(text).collect();
    if kept.len() <= LONGEST {
        return kept.into_iter().collect();
    }
    let (start, end) = (LONGEST / 3, LONGEST - LONGEST / 3 - 1);
    let (start, end) = (&kept[..start], &kept[kept.len() - end..]);
    start.iter().chain(&['…']).chain(end).collect()
}

/// The characters that do nothing but stand there.
fn kept(text: &str) -> impl Iterator<Item = char> {
    text.chars()
        .map(|c| {
            if matches!(c, '\n' | '\r' | '\t') {
                ' '
            } else {
                c
            }
        })
        .filter(|c| !is_unwanted(*c))
}

fn cut(text: &str, longest: usize) -> String {
    let mut kept = kept(text);
    let mut cleaned: String = kept.by_ref().take(longest).collect();
    if kept.next().is_some() {
        cleaned.pop();
        cleaned.push('…');
    }
    cleaned
}

fn is_unwanted(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'                      // soft hyphen
            | '\u{34f}'                   // combining grapheme joiner
            | '\u{61c}'                   // Arabic letter mark
            | '\u{115f}' | '\u{1160}'     // Hangul fillers
            | '\u{17b4}' | '\u{17b5}'     // Khmer inherent vowels
            | '\u{180b}'..='\u{180f}'     // Mongolian selectors and separator
            | '\u{200b}'..='\u{200f}'     // zero-width, direction marks
            | '\u{2028}'..='\u{202e}'     // line separators, direction embedding
            | '\u{2060}'..='\u{206f}'     // word joiner, invisible operators, isolates
            | '\u{3164}' | '\u{ffa0}'     // Hangul fillers
            | '\u{fe00}'..='\u{fe0f}'     // variation selectors
            | '\u{feff}'                  // byte order mark
            | '\u{fff0}'..='\u{fffb}'     // unassigned, annotation
            | '\u{1d173}'..='\u{1d17a}'   // musical formatting
            | '\u{e0000}'..='\u{e0fff}'   // tags, more selectors
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_the_reader_is_removed() {
        assert_eq!(clean("py\u{1b}[31mthon\0"), "py[31mthon");
        assert_eq!(
            clean("a\u{202e}b\u{2066}c\u{200b}d\u{feff}e\u{e0041}f"),
            "abcdef"
        );
        assert_eq!(clean("two\nlines\tand a tab"), "two lines and a tab");
    }

    #[test]
    fn ordinary_text_of_any_script_stays() {
        for text in [
            "pt_data_worker",
            "训练",
            "обучение",
            "e\u{301}",
            "a{b}\"c\"<d>",
        ] {
            assert_eq!(clean(text), text);
        }
    }

    #[test]
    fn long_text_is_cut_and_says_so() {
        let long = "x".repeat(5_000);
        assert_eq!(name(&long).chars().count(), LONGEST_NAME);
        assert_eq!(command_line(&long).chars().count(), LONGEST_COMMAND);
        assert_eq!(clean(&long).chars().count(), LONGEST);
        assert!(clean(&long).ends_with('…'));
        assert_eq!(name(&"x".repeat(LONGEST_NAME)), "x".repeat(LONGEST_NAME));
    }

    #[test]
    fn a_long_reason_keeps_its_end() {
        let long = format!("limit={}\u{1b} must be from 1 to 9", "5".repeat(5_000));
        let cut = reason(&long);
        assert_eq!(cut.chars().count(), LONGEST);
        assert!(cut.starts_with("limit=55") && cut.contains("5…5"), "{cut}");
        assert!(cut.ends_with("55 must be from 1 to 9"), "{cut}");
        assert_eq!(reason("short\n"), "short ");
    }
}
