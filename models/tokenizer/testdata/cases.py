"""The hard cases, and the sentences beside Python's help that the tokenizer is trained on. All written for this purpose."""
import random

# Some of many scripts, so that merges cross the bytes of a character.
SENTENCES = [
    "Die Möwe fliegt über den großen Fluß, während der Bär schläft. Öl, Äpfel und süße Grüße.",
    "L'été dernier, nous étions à la plage ; ça n'a pas été très drôle, hélas, mais l'œuvre est née.",
    "El niño comió piñones en la montaña. ¿Cuántos años tienes? ¡Qué sorpresa!",
    "Быстрая лиса прыгнула через забор, а собака осталась спать на солнце. Это хорошо.",
    "Η γρήγορη αλεπού πήδηξε πάνω από το φράχτη και ο σκύλος κοιμάται.",
    "今天天气很好,我们去公园散步吧。中文的句子没有空格。你好,世界!",
    "今日はとても良い天気ですね。カタカナとひらがなと漢字があります。",
    "오늘은 날씨가 좋습니다. 우리는 공원에서 산책을 합니다. 안녕하세요 세계.",
    "السلام عليكم، كيف حالك اليوم؟ الكتاب على الطاولة في البيت.",
    "שלום עולם, מה שלומך היום? הספר על השולחן בבית.",
    "नमस्ते दुनिया, आज मौसम बहुत अच्छा है। किताब मेज़ पर है।",
    "สวัสดีชาวโลก วันนี้อากาศดีมาก",
    "😀 😀 👍 👍🏽 ❤️ 🎉 👩‍👩‍👧‍👦 🇩🇪 🇫🇷",
    "func main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Println(i)\n\t}\n}\n",
]

SPACES = {"no-break": "\u00a0", "ogham": "\u1680", "en": "\u2002", "em": "\u2003", "thin": "\u2009", "hair": "\u200a", "line": "\u2028",
          "paragraph": "\u2029", "narrow": "\u202f", "mathematical": "\u205f", "ideographic": "\u3000", "next line": "\u0085",
          "vertical tab": "\u000b", "form feed": "\u000c", "tab": "\t", "file separator": "\u001c", "unit separator": "\u001f",
          "zero width (no space)": "\u200b", "word joiner (no space)": "\u2060", "byte order mark (no space)": "\ufeff",
          "mongolian vowel separator (no space)": "\u180e"}


def _texts():
    yield "empty", ""
    yield from (("one " + repr(c), c) for c in " \n\t\r\0aZ0'é漢😀")
    yield "words that may be tokens", "über den Fluß, übrig und übrigens, Mark me brown fox jumps quick brown fox quick brown fox jumps"
    yield "words", "Hello, world! The quick brown fox jumps over the lazy dog."
    for i, sentence in enumerate(SENTENCES):
        yield f"sentence {i}", sentence
    # contractions
    yield "contractions", "I'm you're he's she'd we'll they've can't it's y'all'd've"
    yield "contractions in capitals", "I'M YOU'RE HE'S SHE'D WE'LL THEY'VE CAN'T Y'ALL'D'VE 'Re 'rE 'lL"
    yield "contractions with long s", "it'ſ 'ſ'S'ſ x'ſy"
    yield "contractions and other quotes", "I’m don‘t it`s ''s '''t ' s '\ns 'x 'lx 'r 'v '"
    yield "contraction before letters", "'store 'tis 'remember 'very 'mine 'llama 'dog"
    yield "ligatures", "ﬁ ﬂ ﬀ 'ﬆ ŉ ß ẞ İ ı K Å"
    # digits
    for n in range(1, 11):
        yield f"{n} digits", "9876543210"[:n]
    yield "digits in text", "in 2024, 31415926 and 0.5772156649; 1e-10, 0xDEADBEEF, v1.2.34567"
    yield "other digits", "٠١٢٣٤٥ ०१२३४५ ０１２３４５ ①②③④ ½⅓¼ Ⅳⅻ 〇一二三 ²³¹ 𝟘𝟙𝟚𝟛"
    yield "digits and letters", "a1b22c333d4444e55555 1st 2nd 3rd x86_64 H2O"
    # spaces and newlines
    for n in range(1, 9):
        yield f"{n} spaces", " " * n
        yield f"{n} spaces before a word", " " * n + "word"
        yield f"{n} newlines", "\n" * n
        yield f"{n} newlines before a word", "\n" * n + "word"
        yield f"word, {n} spaces", "word" + " " * n
        yield f"{n} tabs before a word", "\t" * n + "word"
    yield "mixed white space", " \n \n\n \t\n\t \r\n\r\r\n  \n"
    yield "mixed white space around words", "a \n b\n \n c \t\n\td\r\ne\r\rf  \n  g\n\n   h   "
    yield "punctuation then newlines", "end.\n\nnext!\r\n\r\nlast?\n \n(...)\n\n\n}\n;"
    yield "spaces before punctuation", "a  , b   ; c    . !  ?  \n  (  )"
    for name, space in SPACES.items():
        yield f"space: {name}", f"a{space}b{space}{space}c {space}d{space} e{space}\nf{space}"
        yield f"only space: {name}", space * 3
    # unicode
    yield "combining marks", "e\u0301 a\u0308\u0323 Z\u0335\u0321\u0322\u0327 n\u0303o\u0308 \u0301alone \u0301"
    yield "composed and decomposed", "é e\u0301 Å A\u030a ệ e\u0323\u0302"
    yield "letters in the low halves", "\U000e006e\u0301 \U00011f63\u0345 \U0001006e\u0303 \U0001f9a9\u0308a\u0308"
    yield "zalgo", "h\u0300\u0301\u0302\u0303\u0304i\u0340\u0341\u0342\u0343\u0344!"
    yield "emoji", "😀😃😄 👍👍🏻👍🏿 ❤❤️ ☎️ 🎉🎉🎉 ©️ ™️ 1️⃣ #️⃣ *️⃣"
    yield "emoji with joiners", "👩‍👩‍👧‍👦 👨🏽‍💻 🏳️‍🌈 🏴‍☠️ 🧑‍🤝‍🧑 ❤️‍🔥"
    yield "flags", "🇩🇪🇫🇷🇬🇧 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇩"
    yield "emoji between letters", "a😀b 😀c😀\n😀 😀  😀"
    yield "CJK", "漢字かな交じり文、中文简体與繁體。한국어도 있어요! ㄱㄴㄷ ｶﾀｶﾅ"
    yield "CJK without spaces and digits", "第3章2024年12月31日星期二123456円"
    yield "right to left", "مرحبا بالعالم ١٢٣ שלום 123 \u200fabc\u200e \u202bxyz\u202c"
    yield "right to left with marks", "الْعَرَبِيَّةُ עִבְרִית"
    yield "indic", "क्षत्रिय ज़िन्दगी தமிழ் తెలుగు বাংলা"
    yield "mathematical letters", "𝐀𝐁𝐂 𝒳𝓎𝓏 ℵ ℝ ∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ α∧¬β → ⊥"
    yield "beyond the basic plane", "𐍈𐌰 𒀀 𓀀 𠀀𠮷 🜁 \U0001f9ff \U0010fffd \U000f0000"
    yield "private and unassigned", "\ue000\uf8ff \ufdd0 \u0378\u0379 \ufffe\uffff \U000e0fff"
    yield "replacement character", "\ufffd a\ufffdb \ufffd\ufffd"
    yield "newer letters", "\u1c89 \ua7cb \U00010d4a \U0001e5d0 \U00031350 \U000323af \U0002ebf0 \U00016d43 \U0001e6c0 \U00033000"
    yield "soft hyphen and invisibles", "co\u00adop a\u200bb a\u200db a\u200cb \u2060x \ufeffy"
    # control characters
    yield "control characters", "".join(map(chr, range(32)))
    yield "control characters between letters", "x".join(map(chr, range(32))) + "\x7f\x80\x81\x9f"
    yield "latin 1", "".join(map(chr, range(0xa0, 0x100)))
    # code
    yield "go", SENTENCES[-1] * 2
    yield "python", "def f(x, *, y=None):\n    \"\"\"Doc.\"\"\"\n    return {k: v**2 for k, v in x.items() if v != y}  # why?\n\n\nclass A:\n\tpass\n"
    yield "c", "#include <stdio.h>\nint main(void)\n{\n\tprintf(\"%d\\n\", a->b[i++] ^ ~0x1Fu);\n\treturn 0; /* end */\n}"
    yield "json", '{"a": [1, 2.5e-3, null, true], "b\\u00e9": {"c": "\\n"}}'
    yield "html", "<div class=\"x\"><p>Hi&nbsp;there</p><!-- c --></div>\r\n<|not_a_token|>"
    yield "shell", "$ ls -la | grep -v '^d' > \"$HOME/out.txt\" && echo done || exit 1"
    yield "operators", "===>>>=<<<=!==&&&|||...??:::->=>|>~>@#$%^&*()[]{}\\//\\"
    yield "identifiers", "snake_case_name camelCaseName PascalCase SCREAMING_CASE kebab-case __dunder__ x_1_2"
    yield "addresses", "https://example.com/a/b?c=d&e=%20f#g http://user:pw@[::1]:8080/ a.b+c@example.org ftp://x/~y/"
    yield "paths", "C:\\Windows\\System32 ./a/../b/*.go file:///etc/x"
    yield "markdown", "# Head\n\n* item **bold** _it_\n\n```go\nx := 1\n```\n\n| a | b |\n|---|---|\n"
    # special tokens in the text
    yield "special tokens", "<|begin_of_text|>Hello<|eot_id|>"
    yield "special tokens alone", "<|begin_of_text|>"
    yield "special tokens in a row", "<|eot_id|><|eot_id|><|end_of_text|><|begin_of_text|>"
    yield "special tokens and spaces", "a <|eot_id|> b  <|eot_id|>  c\n<|eot_id|>\n\nd"
    yield "a chat", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    yield "almost special tokens", "<|eot_id|<|eot_id>|><| eot_id|><|EOT_ID|><|eot_i<|eot_id|>d|><<|eot_id|>>"
    yield "a special token that begins another", "<|reserved_special_token_1|><|reserved_special_token_10|><|reserved_special_token_1"
    yield "a special token that ends the text", "text<|end_of_text|>"
    # ignore_merges
    yield "no merge leads there", " unreachable unreachable, Ünreachable ünreachable unreachables\n\n\n\n\n \n\n\n\n\nx"
    # long runs
    yield "long run of a", "a" * 3000
    yield "long run of ab", "ab" * 1500
    yield "long run of spaces", " " * 3000 + "x"
    yield "long run of newlines", "\n" * 1000
    yield "long run of digits", "1" * 1000
    yield "long run of dashes", "-" * 3000
    yield "long run of an emoji", "😀" * 500
    yield "long run of a CJK letter", "的" * 500
    yield "long run of combining marks", "e" + "\u0301" * 500
    yield "long word", "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 10
    yield "long run of mixed white space", " \n" * 500 + " \t" * 500


TEXTS = list(_texts())


def id_lists(tokenizer):
    """Lists of ids that no text gives: sequences cut within a character, and at random."""
    smile = tokenizer.encode("漢😀é", add_special_tokens=False).ids
    yield "nothing", []
    byte = {i: tokenizer.token_to_id(c) for i, c in _alphabet().items()}
    hard = {"lone continuation": [0x80], "two continuations": [0x80, 0xBF], "cut after 1 of 3": [0xE6, 0x41], "cut after 2 of 3": [0xE6, 0xBC, 0x41],
            "cut after 3 of 4": [0xF0, 0x9F, 0x98, 0x41], "cut at the end": [0x41, 0xF0, 0x9F, 0x98], "overlong": [0xC0, 0x80, 0xC1, 0xBF],
            "overlong of 3": [0xE0, 0x80, 0x80], "overlong of 4": [0xF0, 0x80, 0x80, 0x80], "surrogate": [0xED, 0xA0, 0x80], "beyond unicode": [0xF4, 0x90, 0x80, 0x80],
            "never a byte": [0xFE, 0xFF, 0xF5], "two cut": [0xE6, 0xBC, 0xF0, 0x9F, 0x98, 0xE6], "nul": [0, 0], "whole": list("é漢😀".encode())}
    for name, values in hard.items():
        yield name, [byte[v] for v in values]
    yield "cut by a special token", [byte[0xF0], byte[0x9F], tokenizer.token_to_id("<|eot_id|>"), byte[0x98], byte[0x80]]
    yield "special tokens", [tokenizer.token_to_id("<|begin_of_text|>")] + smile + [tokenizer.token_to_id("<|eot_id|>")] * 2
    rng = random.Random(7)
    for i in range(40):
        yield f"random {i}", [rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randrange(1, 40))]
    for i in range(40):
        yield f"random bytes {i}", [byte[rng.choice([rng.randrange(256), rng.randrange(0x80, 0x100)])] for _ in range(rng.randrange(1, 30))]


def _alphabet():
    """GPT-2's printable stand-ins: bytes that print stand for themselves, the others follow from U+0100."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(0x100 + i) for i, b in enumerate(hidden)}}
