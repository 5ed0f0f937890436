//! Hides the values of arguments that look like secrets, before they are stored.

const MASK: &str = "***";
/// Parts of names whose values are secrets.
const SECRET_NAMES: &[&str] = &[
    "token",
    "password",
    "passwd",
    "secret",
    "apikey",
    "api_key",
    "api-key",
    "access_key",
    "access-key",
    "private_key",
    "private-key",
    "credential",
    "auth",
];
/// Hexadecimal text of this length or more is a key or a hash, never something a reader needs.
const LONG_HEX: usize = 32;

/// The arguments of a command as one line, with secrets masked.
pub(crate) fn command_line<T: AsRef<str>>(arguments: &[T]) -> String {
    let mut line: Vec<String> = Vec::with_capacity(arguments.len());
    let mut value_of_secret = false;
    for argument in arguments {
        let argument = argument.as_ref();
        if value_of_secret && !argument.starts_with('-') {
            line.push(MASK.to_owned());
            value_of_secret = false;
            continue;
        }
        value_of_secret =
            argument.starts_with('-') && !argument.contains('=') && names_secret(argument);
        line.push(mask(argument));
    }
    line.join(" ")
}

fn mask(argument: &str) -> String {
    if let Some((name, value)) = argument.split_once('=')
        && (names_secret(name) || is_secret_value(value))
    {
        return format!("{name}={MASK}");
    }
    if is_secret_value(argument) {
        return MASK.to_owned();
    }
    // A password in an address: scheme://user:password@host
    if let Some((scheme, rest)) = argument.split_once("://")
        && let Some((user, host)) = rest.split_once('@')
        && let Some((user, _)) = user.split_once(':')
    {
        return format!("{scheme}://{user}:{MASK}@{host}");
    }
    argument.to_owned()
}

fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last_word = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    SECRET_NAMES.iter().any(|secret| match *secret {
        // Short words only as the last one: `--author` and `--tokenizer` are no secrets.
        "auth" | "token" => last_word == *secret,
        secret => name.contains(secret),
    }) || last_word == "key"
}

fn is_secret_value(value: &str) -> bool {
    (value.len() >= LONG_HEX && value.bytes().all(|byte| byte.is_ascii_hexdigit()))
        || ["sk-", "hf_", "ghp_", "glpat-", "xoxb-"]
            .iter()
            .any(|prefix| {
                value
                    .strip_prefix(prefix)
                    .is_some_and(|rest| rest.len() >= 16)
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_look_like_secrets_are_masked() {
        for (given, stored) in [
            (vec!["train.py", "--token", "abc"], "train.py --token ***"),
            (
                vec!["train.py", "--hub-token", "abc"],
                "train.py --hub-token ***",
            ),
            (vec!["x", "--password=abc", "y"], "x --password=*** y"),
            (vec!["env", "API_KEY=abc", "run"], "env API_KEY=*** run"),
            (vec!["env", "WANDB_KEY=abc"], "env WANDB_KEY=***"),
            (vec!["x", "0123456789abcdef0123456789abcdef"], "x ***"),
            (
                vec!["x", "postgres://me:pw@host/db"],
                "x postgres://me:***@host/db",
            ),
            (vec!["x", "hf_abcdefghijklmnopqrst"], "x ***"),
        ] {
            assert_eq!(command_line(&given), stored);
        }
    }

    #[test]
    fn ordinary_arguments_stay() {
        for given in [
            vec!["python", "train.py", "--tokenizer", "gpt2", "--lr=0.1"],
            vec!["x", "--author", "me", "--monkey=1", "--batch-size", "32"],
            vec!["x", "--token"],
            vec!["x", "0123abcd"],
        ] {
            assert_eq!(command_line(&given), given.join(" "));
        }
    }

    #[test]
    fn a_flag_after_a_secret_flag_is_no_value() {
        assert_eq!(
            command_line(&["x", "--token", "--verbose"]),
            "x --token --verbose"
        );
    }
}
