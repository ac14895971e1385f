use super::*;

#[derive(Default)]
struct Seen(Vec<String>);

impl Values for Seen {
    fn value(&mut self, path: &str, value: Value<'_>) {
        self.0.push(match value {
            Value::Text(text) => format!("{path}={text}"),
            Value::Opaque => format!("{path}=…"),
            Value::Number(number) => format!("{path}#{number}"),
            Value::Word => format!("{path}!"),
        });
    }

    fn document_ends(&mut self) {
        self.0.push("end".to_owned());
    }
}

/// What is seen, and whether the document was broken, in pieces of `size`.
fn scan(json: &[u8], size: usize) -> (Vec<String>, bool) {
    let (mut scanner, mut seen) = (Scanner::default(), Seen::default());
    for piece in json.chunks(size) {
        scanner.read(piece, &mut seen);
    }
    (seen.0, scanner.is_broken())
}

#[test]
fn values_are_reported_by_path_for_every_chunking() {
    let long = format!(r#"{{"a":"{}","b":1}}"#, "x".repeat(LONGEST_TEXT + 1));
    let longest = format!(r#"{{"a":"{}"}}"#, "x".repeat(LONGEST_TEXT));
    let longest_seen = format!("a={}", "x".repeat(LONGEST_TEXT));
    let deep = format!(r#"{{"a":{}"}}]\"{{"{},"b":1}}"#, "[".repeat(100), "]".repeat(100));
    let name = format!(r#"{{"{}":1}}"#, "n".repeat(LONGEST_NAME + 1));
    for (json, expected) in [
        (r#"{"a":1}"#, vec!["a#1", "end"]),
        (
            r#" { "a" : { "b" : [ 1 , "x" , { "c" : null } ] } } "#,
            vec!["a.b[]#1", "a.b[]=x", "a.b[].c!", "end"],
        ),
        (r#"{"a":{},"b":[],"c":-1.5e3}"#, vec!["c#-1.5e3", "end"]),
        (r#"{"a":"q\"\\\u00e9\n","b":""}"#, vec!["a=q\"\\é\n", "b=", "end"]),
        (r#"{"\u0061":"\ud800"}"#, vec!["a=…", "end"]),
        (r#"{"a.b":1,"a[]":2,"":3}"#, vec!["?#1", "?#2", "?#3", "end"]),
        (r#"[{"a":1},{"a":2}]"#, vec!["a#1", "end", "a#2", "end"]),
        (r#"[[1],{"b":[2]}]"#, vec!["[]#1", "end", "b[]#2", "end"]),
        ("{\"a\":1}\n{\"a\":2}", vec!["a#1", "end", "a#2", "end"]),
        (r#""x""#, vec!["=x", "end"]),
        (&long, vec!["a=…", "b#1", "end"]),
        (&longest, vec![longest_seen.as_str(), "end"]),
        (&deep, vec!["b#1", "end"]),
        (&name, vec!["?#1", "end"]),
        (r#"{"a":tru"#, vec![]),
        (r#"{"a":{"b":1,"c":"#, vec!["a.b#1"]),
        ("", vec![]),
    ] {
        for size in 1..=json.len().max(1) {
            assert_eq!(
                scan(json.as_bytes(), size),
                (expected.iter().map(|&s| s.to_owned()).collect(), false),
                "{json}"
            );
        }
    }
}

#[test]
fn what_is_no_json_is_broken_until_it_is_reset() {
    for json in
        ["<html>", "[DONE]", "{1:2}", "{\"a\" 1}", "{\"a\":1]", "[1}", "{\"a\":1,}", "}", "{\"a\":nope}"]
    {
        assert!(scan(json.as_bytes(), 1).1, "{json}");
    }
    let (mut scanner, mut seen) = (Scanner::default(), Seen::default());
    scanner.read(b"{\"a\":<", &mut seen);
    scanner.read(b"{\"a\":1}", &mut seen);
    assert_eq!(seen.0, [""; 0]);
    scanner.reset();
    scanner.read(b"{\"a\":1}", &mut seen);
    assert_eq!(seen.0, ["a#1", "end"]);
}

#[test]
fn whatever_comes_the_scanner_keeps_a_few_kilobytes() {
    let name = format!("{{\"{}\":", "n".repeat(10_000));
    for (begin, repeated) in
        [("", "["), ("", "{\"a\":"), ("", name.as_str()), ("{\"a\":\"", "xxxx\\n"), ("", "1"), ("{\"", "k")]
    {
        let (mut scanner, mut seen) = (Scanner::default(), Seen::default());
        scanner.read(begin.as_bytes(), &mut seen);
        for _ in 0..10_000 {
            scanner.read(repeated.as_bytes(), &mut seen);
        }
        let levels = scanner.levels.capacity() * size_of::<Level>();
        let kept = levels + scanner.path.capacity() + scanner.token.capacity();
        assert!(kept < 10_000, "{repeated}: {kept}");
    }
}
