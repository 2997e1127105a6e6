#!/usr/bin/env python3
"""Makes the reference vectors of tests/text with the Python packages tokenizers and jinja2 (pip install tokenizers jinja2).

  make_text_vectors.py [QWEN_FOLDER]

QWEN_FOLDER as make_qwen_tokenizer.py writes it; without it only the canary's and the templates' vectors are made."""
import json
import pathlib
import random
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "text"

CORPUS = [
    "", " ", "\n", "a", "Hello, world!", "The quick brown fox doesn't jump; it's WE'LL and I'D, they've, 'S 'T 'Re.",
    # scripts
    "Tiếng Việt có nhiều dấu: Trường học, nghiêng ngả, ưỡn ẹo.", "Tie\u0302\u0301ng Vie\u0323\u0302t decomposed",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ น้ำท่วม กรุงเทพฯ", "हिन्दी में संयुक्ताक्षर: क्षत्रिय, ज्ञान, श्रृंखला।", "বাংলা ভাষা ও தமிழ் மொழி మరియు తెలుగు",
    "اللُّغَةُ العَرَبِيَّةُ جميلة، ١٢٣٤٥٦", "עִבְרִית עם ניקוד ובלי ניקוד", "فارسی و اردو: می‌خواهم ٪",
    "中文分词没有空格，混合English和数字123。", "日本語の文章、カタカナとひらがな。ﾊﾝｶｸ", "한국어 문장입니다. 자모: 한글", "粵語：佢哋喺度嘅",
    "Русский текст и українська мова, ё Ё", "Ελληνικά: ἀρχῇ ἦν ὁ λόγος", "ქართული ენა, Հայերեն, አማርኛ, ខ្មែរ, ລາວ, မြန်မာ, བོད་ཡིག",
    "Türkçe İstanbul ıIiİ, Straße ẞ, ſlow 'ſ", "𝒳𝓎𝔷 𝟘𝟙𝟚 ①②③ Ⅳ ½ ²³", "🇻🇳🇯🇵 👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 ❤️ ☺️ 1️⃣",
    # marks, spaces, line ends
    "e\u0301 o\u0308 n\u0303 \u0301lone a\u0301\u0323\u0302", "\u0301", "<\u0338 >\u0338 =\u0338", "ﬁ ﬂ Å Å Ω Ω",
    "line\r\nline\r\n\r\n  indented\r\n", "a\rb\rc", "tab\there\t\ttwo", "a\u00a0b \u00a0c\u00a0\u00a0d", "\u2003em\u2009thin\u202fnarrow\u3000wide",
    "x\u0085y\u2028z\u2029w", "zero\u200bwidth\u200djoin\ufeffbom", "   lead", "trail   ", "a  b   c    d     e", " " * 50 + "x", " \n \n\n  \n x", "\n" * 20,
    "\x00\x01\x1b[0m\x7f", "\ufffd \uffff \ue000 \U000f0000 \U000ff000 \U0010ffff",
    # digits and code
    "0 12 345 6789 1234567890123456789012345678901234567890", "3.14159 -1e-10 0xFF 1,000,000 ٣٤٥ ४५६", "v1.2.3-rc.4+build.5",
    'def f(x):\n    """doc"""\n    return {k: v for k, v in x.items() if v != None}\n', "for(int i=0;i<n;++i){a[i]<<=2;}//!=\n\n\n#endif",
    "<html><body class=\"a\">&nbsp;</body></html>", '{"a": [1, 2.5, null, true], "b": "\\u00e9"}', "SELECT * FROM t WHERE a='it''s';",
    "https://example.com/a?b=c&d=%20#frag user@example.org", "\\frac{a}{b} $$x^2$$ \\begin{align*}", "-----====+++***___~~~```", "....!!!???",
    "CamelCaseWords snake_case_words kebab-case-words SCREAMING", "a" * 100, "ab" * 40, "!" * 40, "привет" * 10,
    # literals of added tokens, whole and in part
    "<|im_start|>user\nhi<|im_end|>\n", "<think>\n\n</think>\n\n", "<tool_call>\n<function=f>\n</function>\n</tool_call>", "<|im_end|", "<|im_end|>>",
    "<<|im_end|>", "<think", "</think></think>", " <|im_start|> ", "é<think>é", "<|vision_start|><|image_pad|><|vision_end|>", "<|IM_END|>", "<|endoftext|>x",
]  # fmt: skip


def corpus():
    rng = random.Random(7)
    joined = [t for t in CORPUS if t.strip()]
    mixed = ["".join(rng.choice(joined)[: rng.randint(1, 30)] for _ in range(6)) for _ in range(40)]
    return CORPUS + mixed


def token_vectors(tokenizer_json, config=None):
    spec = json.loads(tokenizer_json)
    known = {t["id"] for t in spec["added_tokens"]}
    extra = (config or {}).get("added_tokens_decoder", {})
    spec["added_tokens"] += [dict(id=int(i), **t) for i, t in extra.items() if int(i) not in known]
    full = tokenizers.Tokenizer.from_str(json.dumps(spec))
    plain = tokenizers.Tokenizer.from_str(json.dumps(spec | {"added_tokens": []}))
    encode = lambda t, text: t.encode(text, add_special_tokens=False).ids
    return [dict(text=t, ids=encode(full, t), plain=encode(plain, t)) for t in corpus()]


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


VALUES = dict(
    s="  Ünï <b> 'q' \"d\" \n\tx  ", n=None, t=True, f=False, i=42, neg=-7, big=9007199254740993, u=18446744073709551615,
    fl=1.0, e1=1e16, e2=1.5e-5, e3=0.1, e4=123456789.125, e5=1e22, e6=-0.0001, e7=1e-7, l=[1, "two", None, [3.5, True]], empty=[],
    d={"z": 1, "a": {"items": [1], "keys": "k", "é": "ü"}, "items": "own"}, ed={}, lines="a\nb\r\nc\x0bd\x1ce", ws="\x1c\x1f x \u00a0\u3000",
    msgs=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo", "n": 1}, {"role": "user", "content": ""}],
    ctl="\x00\x08\x0c\x1f\x7f\u2028 \\ \" / <>&'", csv="a,b,,c", dup=["b", "a", "b", "C"],
)  # fmt: skip

TEMPLATES = [
    # printing
    "{{ s }}|{{ n }}|{{ t }}|{{ f }}|{{ i }}|{{ neg }}|{{ big }}|{{ u }}|{{ undefined_one }}|",
    "{{ fl }} {{ e1 }} {{ e2 }} {{ e3 }} {{ e4 }} {{ e5 }} {{ e6 }} {{ e7 }}",
    "{{ fl | string }} {{ e1 | string }} {{ n | string }} {{ t | string }} {{ i | string }} {{ s | string }}",
    "{{ 'a' ~ i ~ t ~ n ~ fl }}", "{{ l }} {{ d }} {{ empty }} {{ ed }}", "{{ l | string }}",
    # json
    "{{ s | tojson }}", "{{ l | tojson }}", "{{ d | tojson }}", "{{ ctl | tojson }}", "{{ d | tojson(indent=2) }}", "{{ l | tojson(indent=4) }}",
    "{{ d | tojson(ensure_ascii=true) }}", "{{ d | tojson(sort_keys=true) }}", "{{ d | tojson(separators=(',', ':')) }}", "{{ empty | tojson(indent=1) }}{{ ed | tojson }}",
    "{{ [fl, e1, e2, e5, e7, u, big, neg, n, t] | tojson }}", "{{ {'a': 1, 'b': [true, none]} | tojson }}", "{{ msgs | tojson }}", "{{ (1, 'a') | tojson }}",
    # strings
    "[{{ s | trim }}] [{{ s.strip() }}] [{{ s.lstrip() }}] [{{ s.rstrip() }}] [{{ ws | trim }}] [{{ ws.strip() }}]", "[{{ 'xxaxx'.strip('x') }}{{ '\n\na\n'.lstrip('\n') }}]",
    "{{ csv.split(',') }} {{ csv.split(',', 1) }} {{ s.split() }} {{ csv.rsplit(',', 1) }}", "{{ csv.split(',')[0] }}{{ csv.split(',')[-1] }}", "{{ lines.splitlines() }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.find('c') }} {{ 'abc'.replace('b', 'x') }} {{ 'aXb'.upper() }} {{ 'aXb'.lower() }}",
    "{{ 'a-b'.partition('-') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ '7'.zfill(3) }}", "{{ s[2:5] }}|{{ s[-3:] }}|{{ 'abc'[::-1] }}|{{ 'abc'[1] }}",
    "{{ ', '.join(dup) }} {{ dup | join('+') }} {{ dup | length }} {{ 'ü' * 3 }} {{ 'a' + 'b' }}", "{{ 'hello world' | title }} {{ 'hELLO' | capitalize }} {{ 'x' | upper }} {{ 'a b'.title() }}",
    "{{ 'b' in 'abc' }} {{ 'z' not in d }} {{ 'items' in d }} {{ 3 in l }} {{ 'two' in l }}", "{{ s | replace('Ü', 'U') }} {{ '%s-%d' | format('a', 3) }}", "{{ 'a\nb' | indent(2) }}",
    # containers
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }};{% endfor %}", "{% for k in d %}{{ k }};{% endfor %}", "{{ d.a['items'] }} {{ d['items'] }} {{ d.get('q', 'dflt') }} {{ d.get('z') }}",
    "{{ d.keys() | list }} {{ d.values() | list | length }}", "{% for k, v in d | dictsort %}{{ k }}{% endfor %}", "{{ dup | unique | list }} {{ dup | sort }} {{ dup | first }} {{ dup | last }} {{ dup | reverse | list }}",
    "{{ msgs | map(attribute='role') | list }} {{ msgs | selectattr('role', 'equalto', 'user') | list | length }} {{ msgs | rejectattr('n', 'defined') | list | length }}", "{{ msgs[1:] | length }} {{ msgs[::-1][0].content }}|{{ msgs[-2].content }}",
    "{{ range(3) | list }} {{ range(5, 0, -2) | list }} {{ [1, 2] + [3] }} {{ (dict(a=1)).a }} {{ [3, 1, 2] | max }} {{ [1, 2] | sum }}", "{{ msgs[1].nope }}|{{ msgs[1].nope is defined }}|{{ msgs[1]['nope'] is none }}|{{ nope | default('d') }}|{{ n or 'o' }}",
    # tests
    "{% for x in [s, n, t, i, fl, l, d, undefined_one] %}{{ x is string }}{{ x is none }}{{ x is mapping }}{{ x is sequence }}{{ x is iterable }}{{ x is number }}{{ x is boolean }}{{ x is defined }};{% endfor %}",
    "{{ i is integer }} {{ fl is float }} {{ t is true }} {{ f is false }} {{ 3 is odd }} {{ 4 is even }} {{ 4 is divisibleby 2 }} {{ 'a' is in 'abc' }} {{ i is eq 42 }} {{ n is not none }}",
    # statements
    "{% set ns = namespace(a=0) %}{% for m in msgs %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}", "{% set x = 1 %}{% for i in [1, 2] %}{% set x = i %}{% endfor %}{{ x }}", "{% set b %}block {{ i }}{% endset %}{{ b }}",
    "{% for m in msgs %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem.role if loop.previtem }}{{ loop.nextitem.role if loop.nextitem is defined }};{% endfor %}",
    "{% for m in msgs if m.role == 'user' %}{{ loop.index }}{{ m.content }}{% else %}none{% endfor %}", "{% for m in [] %}{% else %}none{% endfor %}", "{% for m in msgs %}{% if loop.index == 2 %}{% continue %}{% endif %}{{ m.role }}{% if loop.last %}{% break %}{% endif %}{% endfor %}",
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, b='x') }} {{ m('q', 3) | upper }}", "{% macro inner(x) %}<{{ x }}>{% endmacro %}{% macro outer(x) %}{{ inner(x) }}{{ i }}{% endmacro %}{{ outer(5) }}",
    "{% macro c() %}[{{ caller() }}]{% endmacro %}{% call c() %}body{% endcall %}", "{% filter upper %}text {{ i }}{% endfilter %}", "{% with a = 1 %}{{ a }}{% endwith %}{{ a }}", "{% raw %}{{ not }}{% endraw %}{# comment #}x",
    "{{ 1 if t else 2 }}{{ 1 if f }}|{{ 'a' if n else 'b' if t else 'c' }}", "{{ not t }} {{ t and f }} {{ f or 'x' }} {{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ 7 % 3 }} {{ 2 ** 3 }} {{ -7 // 2 }} {{ 1 - -1 }}",
    # whitespace
    "a\n  {% if t %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if t -%}\n  b\n  {%- endif -%}\nc\n", "  {% set x = 1 %}  \n  {{ x }}  \n", "{# c #}\nx\n\n", "a {%+ if t %} b{% endif %}\n\n", "x  {{- ' y ' -}}  z\n", "{% for i in [1,2] %}\n{{ i }}\n{% endfor %}\nend",
    "\t{% if t %}\n\tq\n\t{% endif %}", "{{ 'a' }}\n{{ 'b' }}\n", "{% if t %}\r\nx\r\n{% endif %}\r\n", "{%- if t %}x{% endif -%}   \n\n y",
    # errors
    "{{ raise_exception('Stop <here>') }}", "{% macro m() %}{{ raise_exception('inside') }}{% endmacro %}{{ m() }}", "{{ nope.attr }}",
]  # fmt: skip


def qwen_like():
    """A template with the constructs of the checkpoints' own, in other words."""
    return r"""
{%- set images = namespace(value=0) %}
{%- macro render_content(content, count, is_system=false) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for item in content %}
            {%- if 'image' in item or 'image_url' in item or item.type == 'image' %}
                {%- if is_system %}
                    {{- raise_exception('no image in system') }}
                {%- endif %}
                {%- if count %}
                    {%- set images.value = images.value + 1 %}
                {%- endif %}
                {%- if add_vision_id %}
                    {{- 'Picture ' ~ images.value ~ ': ' }}
                {%- endif %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif 'text' in item %}
                {{- item.text }}
            {%- else %}
                {{- raise_exception('bad item') }}
            {%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}
        {{- '' }}
    {%- else %}
        {{- raise_exception('bad content') }}
    {%- endif %}
{%- endmacro %}
{%- if not messages %}
    {{- raise_exception('no messages') }}
{%- endif %}
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|im_start|>system\n' }}
    {{- "# Functions\n\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>" }}
    {%- if messages[0].role == 'system' %}
        {%- set content = render_content(messages[0].content, false, true)|trim %}
        {%- if content %}
            {{- '\n\n' + content }}
        {%- endif %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {%- set content = render_content(messages[0].content, false, true)|trim %}
        {{- '<|im_start|>system\n' + content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" %}
        {%- set content = render_content(message.content, false)|trim %}
        {%- if not(content.startswith('<tool_response>') and content.endswith('</tool_response>')) %}
            {%- set ns.searching = false %}
            {%- set ns.last = index %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if ns.searching %}
    {{- raise_exception('no query') }}
{%- endif %}
{%- for message in messages %}
    {%- set content = render_content(message.content, true)|trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}
            {{- raise_exception('late system') }}
        {%- endif %}
    {%- elif message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- set reasoning = reasoning|trim %}
        {%- if (preserve_thinking is defined and preserve_thinking is true) or (loop.index0 > ns.last) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls and message.tool_calls is iterable and message.tool_calls is not mapping %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {%- if loop.first %}
                    {%- if content|trim %}
                        {{- '\n\n<tool_call>\n<function=' + tool_call.name + '>\n' }}
                    {%- else %}
                        {{- '<tool_call>\n<function=' + tool_call.name + '>\n' }}
                    {%- endif %}
                {%- else %}
                    {{- '\n<tool_call>\n<function=' + tool_call.name + '>\n' }}
                {%- endif %}
                {%- if tool_call.arguments is defined %}
                    {%- for name, value in tool_call.arguments|items %}
                        {{- '<parameter=' + name + '>\n' }}
                        {%- set value = value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string %}
                        {{- value }}
                        {{- '\n</parameter>\n' }}
                    {%- endfor %}
                {%- endif %}
                {{- '</function>\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- content }}
        {{- '\n</tool_response>' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}
            {{- '<|im_end|>\n' }}
        {%- elif loop.last %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- else %}
        {{- raise_exception('bad role') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- else %}
        {{- '<think>\n' }}
    {%- endif %}
{%- endif %}
""".lstrip("\n")


def conversations():
    tool = {"type": "function", "function": {"name": "find", "description": "Sücht <b>", "parameters": {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "number", "default": 1.0}}}}}  # fmt: skip
    arguments = {"q": " zwei\nZeilen ", "n": 1.0, "ok": True, "none": None, "items": [1, "é"], "keys": {"a": 1e-7}, "big": 9007199254740993}  # fmt: skip
    call = lambda: {"id": "c", "type": "function", "function": {"name": "find", "arguments": arguments}}
    user = lambda c: {"role": "user", "content": c}
    bot = lambda c, **k: {"role": "assistant", "content": c, **k}
    said = lambda c: {"role": "tool", "content": c}
    system = {"role": "system", "content": "  Be\u00a0brief.  \n"}
    history = [system, user("Hi \n"), bot("Hello", reasoning_content="\n thought \n"), user("more"), bot("<think>\nold\n</think>\n\nanswer")]
    yield dict(messages=[user("Hi")], add_generation_prompt=True)
    yield dict(messages=[user("Hi")], add_generation_prompt=True, enable_thinking=False)
    yield dict(messages=[user("Hi")], add_generation_prompt=False)
    yield dict(messages=history, add_generation_prompt=True, enable_thinking=True)
    yield dict(messages=history, add_generation_prompt=True, preserve_thinking=True)
    yield dict(messages=history + [user("x"), bot("", tool_calls=[call()]), said("r1"), said(" r2 ")], tools=[tool], add_generation_prompt=True)
    yield dict(messages=[user("x"), bot("text", tool_calls=[call(), call()], reasoning_content="why"), said("r"), bot("done"), user("y")], tools=[tool, tool])
    yield dict(messages=[user([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]), bot(None), user("é")], add_vision_id=True)
    yield dict(messages=[])
    yield dict(messages=[system])
    yield dict(messages=[user("a"), system, user("b")])
    yield dict(messages=[{"role": "critic", "content": "a"}, user("b")])


def template_vectors():
    env = environment()
    cases = [(t, VALUES) for t in TEMPLATES]
    canary = (ROOT / "models" / "canary" / "chat_template.jinja").read_text()
    cases += [(t, c) for t in (qwen_like(), canary) for c in conversations()]
    out, sources = [], []
    for source, context in cases:
        if source not in sources:
            sources.append(source)
        case = dict(template=sources.index(source))
        if context is not VALUES:
            case["context"] = context
        try:
            case["output"] = env.from_string(source).render(**context)
        except jinja2.exceptions.TemplateError as e:
            case["error"] = str(e)
        out.append(case)
    return dict(values=VALUES, templates=sources, cases=out)


def write(path, content):
    path.write_text(json.dumps(content, ensure_ascii=True, indent=None, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size)


def main():
    canary = ROOT / "models" / "canary"
    write(TESTS / "canary_vectors.json", token_vectors((canary / "tokenizer.json").read_text(encoding="utf-8")))
    write(TESTS / "template_vectors.json", template_vectors())
    if len(sys.argv) > 1:
        folder = pathlib.Path(sys.argv[1])
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        vectors = token_vectors((folder / "tokenizer.json").read_text(encoding="utf-8"), config)
        write(TESTS / "slow" / "qwen_vectors.json", vectors)


main()
