"""Writes tests/golden/web/urls.json: hosts and forms of URLs, and what becomes of each: the URL, host and port that are fetched, or the error.

    python3 tools/goldens/make_url_goldens.py tests/golden/web/urls.json

libcurl and libidn2 decide that, so which release of them is linked. This script collects the URLs; the outcomes are those of the
program build/release/tests/web_test with the libraries that it is linked with, whose versions the file names. It is made on Debian 12.
Needs Python's own modules only.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Names by alphabet: of each some words, letters that are mapped or deviate, and letters that only newer releases of Unicode have.
HOSTS = (
    "example", "EXAMPLE", "ex-ample", "-example", "example-", "ex--ample", "ex_ample", "_example", "e.x.a.m.p.l.e", "example.", "example..", ".example", "ex..ample",
    "a" * 63, "a" * 64, ".".join(["a" * 63] * 4), ".".join(["a" * 61] * 4) + ".abcde", ".".join(["a" * 63] * 5), "1example", "123", "1.2.3.4", "1.2.3", "1.2", "1",
    "01.02.03.04", "0x7f.1", "0x7f000001", "017700000001", "2130706433", "4294967295", "4294967296", "1.2.3.256", "1.2.3.4.5", "1.2.3.4.", "0x1.0x2.0x3.0x4", "0x", "1.2.3.0x",
    "1.2.3.a", "256.1.1.1", "0.0.0.0", "1..2", "08.1.1.1", "0xG", "1e2", "+1", "-1", "1.2.3.4-", "1,2", "[::]", "[::1]", "[1::2::3]", "[::ffff:1.2.3.4]", "[::FFFF:0102:0304]",
    "[2001:DB8:0:0:0:0:0:1]", "[2001:db8:0:0:1:0:0:1]", "[1:2:3:4:5:6:7:8]", "[1:2:3:4:5:6:7:8:9]", "[::1%25lo]", "[::1%lo]", "[v1.a]", "[]", "[:]", "[::1", "::1", "[::1]a",
    "bücher", "BÜCHER", "bu\u0308cher", "faß", "FASS", "ẞ", "straße", "ﬀ", "ﬁne", "Ångström", "Å", "K", "ſ", "İstanbul", "ıstanbul", "Ǆ", "ŉ", "ĸ",
    "ö-", "-ö", "ö--ö", "ab--ö", "xn--bcher-kva", "XN--BCHER-KVA", "xn--bücher", "xn--", "xn--a", "xn--a-", "xn--\u00fc", "xn--zca", "xn--fa-hia", "xn--o38h", "xn--0", "xn--ls8h", "xn--xn--a",
    "ςigma", "σίγμας", "ΣΊΓΜΑΣ", "βόλος", "ΒΌΛΟΣ", "пример", "ПРИМЕР", "россия.рф", "їжак", "ѐ", "ᲀ", "მაგალითი", "ᲛᲐᲒᲐᲚᲘᲗᲘ", "օրինակ", "և", "דוגמה", "דוגמה1", "1דוגמה", "אa", "aא",
    "مثال", "مثال1", "مثال١", "١مثال", "۱مثال", "مثالa", "نامه\u200cای", "a\u200cb", "a\u200db", "क्\u200dष", "क\u200dष", "श्री", "श्री\u200d", "උදාහරණය", "ශ්\u200dරී", "உதாரணம்", "ตัวอย่าง", "ຕົວຢ່າງ", "ဥပမာ", "ឧទាហរណ៍",
    "例え", "例え。テスト", "例え．テスト", "例え｡ﾃｽﾄ", "ﾊﾟ", "パ", "か゛", "ー", "・", "例・え", "a・b", "々", "〇", "예제", "\u1112\u1161\u11ab\u1100\u1173\u11af", "例子", "𠮷", "㍿", "㋀", "①", "１０.0.0.1", "１２７．０．０．１", "０x7f.1", "⒈", "⑴",
    "²", "½", "ª", "™", "℀", "℡", "№", "¼", "…", "a‥b", "‘a’", "“", "«", "–", "a—b", "·", "l·l", "a·b", "׳", "א׳", "͵α", "͵",
    "😭", "❤", "❤️", "♥", "👍🏽", "👨‍👩‍👧", "🇩🇪", "☃", "⌚", "🫠", "🫨", "🫩", "🪿", "🛜", "a😀b", "I❤NY", "★", "→", "√", "∞", "≠", "=", "≮", "a≯",
    "\u0300a", "a\u0300", "a\u0323\u0307", "a\u0307\u0323", "\u0345", "a\u0345", "\u093c", "a\u3099", "\u00ad", "a\u00adb", "\u034f", "a\u180eb", "a\u200bb", "a\u2060b", "\ufeffa", "a\ufe0fb", "a\u2028b", "a\u202eb", "a\u2066b",
    "a\u0085b", "a\u00a0b", "a\u1680b", "a\u2000b", "a\u3000b", "a\u2024b", "a\u2025b", "a\u2026b", "a\uff0eb", "a\u3002b", "a\uff61b", "a\u2044b", "a\u2215b", "a\uff0fb", "a\u2100b", "a\uff1ab", "a\uff20b", "a\uff1fb", "a\uff03b", "a\uff05b", "a\u2048b",
    "\u0378", "\u05ff", "\u2fe0", "\U0002fffe", "\U000e0001", "\U000e0041", "\ue000", "\U000f0000", "\ufdd0", "\uffff", "\ufffd", "\U0001d400", "\U0001d4d0", "\U0001d7ce", "\U0001f130", "\U0001f150",
    # Unicode 11 to 16, one or two of each.
    "\u10d0\u1c90", "\u0560", "\u0c77", "\U00010d00", "\U00011eea", "\u0c77", "\u32ff", "\U0001e100", "\u08be", "\u31bb", "\U00010e80", "\U00018b00", "\U00010570", "\U0001e290", "\u08c8", "\ua7c0", "\ua7f2", "\U00011f00", "\U0001e4d0", "\U00031350", "\u0cf3",
    "\u2ffc", "\U0002ebf0", "\u1c89", "\u1c8a", "\U00010d40", "\U0001e5d0", "\ua7cb", "\ua7dc", "\U00016100",
    "a b", "a%20b", "a%00b", "a%2fb", "a%2Eb", "a%41b", "a%C3%BCb", "a%c3%bcb", "a%FFb", "a%b", "a%", "%", "%65xample", "a!b", 'a"b', "a#b", "a$b", "a&b", "a'b", "a(b", "a)b", "a*b", "a+b", "a,b", "a;b", "a<b", "a>b", "a=b",
    "a@b", "a[b", "a]b", "a\\b", "a^b", "a`b", "a{b", "a|b", "a}b", "a~b", "a\x7fb", "a\tb", "*", "*.example", "~", "a:b", "a:b@c", "@a", ":@a", "a:", "",
)
FORMS = (
    "http:example.com", "http:/example.com", "http:///example.com", "http:////example.com", "http:\\\\example.com", "http:/\\example.com", "https:example.com/a", "HTTPS://example.com", "hTtP://a", "http ://a", " http://a", "http://a ",
    "\u00a0http://a", "\ufeffhttp://a", "http//a", "://a", "a.example/b", "www.example.com", "example.com:80", "localhost", "ftp://a", "ws://a", "file://a", "gopher://a", "http+x://a", "h2ttp://a", "httpss://a", "mailto:a@b", "urn:a",
    "http://a:80", "http://a:443", "https://a:443", "https://a:80", "http://a:", "http://a:0", "http://a:00080", "http://a:65535", "http://a:65536", "http://a:080a", "http://a:-1", "http://a:+80", "http://a: 80", "http://a:8 0", "http://a:８０", "http://a:8080", "http://[::1]:80",
    "http://[::1]:", "http://[::1]80", "http://a?b", "http://a#b", "http://a?b#c?d", "http://a/?", "http://a/#", "http://a/?#", "http://a//b//c", "http://a/b/../../c", "http://a/./.././", "http://a/b/..", "http://a/b/.", "http://a/..b", "http://a/%2e/b", "http://a/%2E%2E/b", "http://a/b/%2E./c", "http://a/b/.%2e", "http://a/b/%2e%2e%2e/c", "http://a/?/%2e%2e/",
    "http://a/b%2f..%2fc", "http://a/\\b", "http://a/b\\..\\c", "http://a/b c", "http://a/b%20c", "http://a/b+c", "http://a/?b c", "http://a/?b%20c", "http://a/?b+c", "http://a/%", "http://a/%z", "http://a/%zz", "http://a/%00", "http://a/ü", "http://a/?ü", "http://a/#ü",
    "http://a/%C3%BC", "http://a/%c3%bc", "http://a/日本/🙂", "http://a/<b>", 'http://a/"b"', "http://a/{b}", "http://a/|b", "http://a/^b", "http://a/`b", "http://a/[b]", "http://a/;b", "http://a/b;c=d", "http://a/:b", "http://a/@b", "http://a/b@c:d", "http://a/~b", "http://a/'b'",
    "http://a/?b=c&d=e&amp;f", "http://a/?b?c", "http://a/?b/../c", "http://a/?[b]", "http://a/?%", "http://u@a/", "http://u:p@a/", "http://:p@a/", "http://@a/", "http://u%40@a/", "http://a@b@c/", "http://a/\u2028", "http://a/\x1f", "http://a/\t", "http://a/\nb", "http://a\n/",
    "http://" + "a" * 1_000, "http://" + "ü" * 60, "http://" + "ü." * 120 + "a",
)
NO_UTF8 = (b"http://b\xfccher.example/", b"http://a/b\xfcc", b"http://a/?b\xfcc", b"http://a\xc3/", b"http://a/\xc3", b"http://\xed\xa0\x80/", b"http://\xf4\x90\x80\x80/", b"http://\xc0\xafa/", b"http://\xe4\xbe/", b"\xffhttp://a/")


def inputs() -> list[dict]:
    texts = [*(f"http://{host}/" for host in HOSTS), *FORMS]
    found = [{"url": text} for text in dict.fromkeys(texts)]
    return found + [{"hex": data.hex()} for data in NO_UTF8]


def main() -> None:
    path = pathlib.Path(sys.argv[1]).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cases": inputs()}))
    subprocess.run([ROOT / "build" / "release" / "tests" / "web_test", "--gtest_filter=url_goldens.*"], check=True,
                   env={**os.environ, "DARKROOM_RECORD_URLS": str(path)}, stdout=subprocess.DEVNULL)
    recorded = json.loads(path.read_text())
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in recorded.pop("cases"))
    head = json.dumps({"made by": "tools/goldens/make_url_goldens.py", **recorded}, ensure_ascii=True)
    path.write_text(f'{head[:-1]}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
