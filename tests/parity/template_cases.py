"""Templates for the comparison with transformers: one small template for every construct, and whole chat templates
in the manner of the families. Written for this test.

A case is (template, variables). Where transformers raises an error, Plimsoll must too.
"""

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Wie geht's? \n"},
    {"role": "assistant", "content": "Gut – 你好 \U0001f642"},
    {"role": "user", "content": "2 < 3 && \"x\""},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nJa."},
]
TOOLS = [{"type": "function", "function": {"name": "get_temperature", "description": "It's \"warm\"",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
TOOL_CHAT = [
    {"role": "user", "content": "How warm is it in Graz?"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "get_temperature", "arguments": {"city": "Graz", "n": 1.5, "k": None}}}]},
    {"role": "tool", "name": "get_temperature", "content": "21"},
    {"role": "tool", "name": "get_temperature", "content": "22"},
    {"role": "assistant", "content": "It is 21 degrees.", "reasoning_content": "easy"},
]
VALUES = {
    "messages": MESSAGES, "tools": None, "documents": None, "add_generation_prompt": True,
    "bos_token": "<s>", "eos_token": "</s>", "none_value": None, "yes": True, "no": False, "i": 7, "f": 2.5,
    "s": "  Hello, Wörld  ", "empty": "", "list": [3, 1, 2], "words": ["b", "A", "c", "a", "B"], "nested": [[1, 2], [3, 4]],
    "d": {"b": 1, "a": {"x": [1, 2.0, None, True, "q'\"\n"]}, "items": 5, "Key": "v"},
    "people": [{"name": "Bo", "age": 3, "in": {"x": 1}}, {"name": "al", "age": 1, "in": {"x": 2}}, {"name": "Cy", "age": 2}],
    "numbers": [0.1, 1e20, 1e16, 1e15, 1e-5, 1e-4, 123456.789, -0.0, 5e-324, 1.7976931348623157e308, 100.0],
    "text": "one\ntwo\r\nthree four", "unicode": "ßẞ ŉ Σ ΑΣ ǆ ﬁ ÅNGSTRÖM i̇", "spaces": "\u00a0\u2003x\u200b\u3000\x1c",
    "odd_text": "a\u0000b\x7f\u00ad\u2028\U0001f642\\'\"\t",
}

EXPRESSIONS = """
1 + 2 * 3 - 4 / 2|7 // 2|-7 // 2|7 % -3|-7 % 3|2 ** 10|2 ** -1|2 ** 3 ** 2|7.5 // 2|-7.5 % 2|1 / 3|True + 1|-True|+True
1 == 1.0|'a' < 'b' < 'c'|1 < 2 > 3|1 in [1, 2]|3 not in [1, 2]|'a' in 'cat'|'b' in d|[1] == [1.0]|(1, 2) == [1, 2]|none == undefined_name
undefined_name == other_undefined|d == {'Key': 'v', 'items': 5, 'b': 1, 'a': d.a}|not 1|not none or 2|0 or ''|1 and 'x'|'' and 1|yes and no or 7
'a' ~ 1 ~ none ~ 2.0 ~ [1, 'b'] ~ {'c': true}|'a' 'b'|"it's"|'q"'|'a\\tb\\n\\x41\\u00e9\\\\ \\q'|'x' * 3|3 * 'ab'|[1, 2] * 2|'x' * -1|[1] + [2]|(1,) + (2,)
1 if yes else 2|1 if no else 2|1 if no|(1 if no) is defined|'a' if no else 'b' if no else 'c'|[1, 2, 3][0]|[1, 2, 3][-1]|[1][5] is defined|'añb'[1]|'añb'[-1]|'añb'[9] is defined
[1, 2, 3, 4][1:3]|[1, 2, 3, 4][::-1]|[1, 2, 3, 4][-2:]|[1, 2, 3, 4][:-1]|[1, 2, 3, 4][::2]|'héllo'[1:3]|'héllo'[::-1]|'héllo'[-3:]|'héllo'[4:1:-2]|(1, 2, 3)[1:]|[1, 2][5:]|'abc'[:none]
d.b|d['b']|d.a.x|d['a']['x'][4]|d.missing is defined|d['missing'] is defined|d.items is defined|d['items']|d.Key|people[0].name|people.0.name|messages[-1]['role']|list|words|numbers|d|nested
none|True|1.0|1e3|1_000|0.1 + 0.2|1e16|1e-5|{}|[]|()|(1,)|{'a': 1, 2: 'b', none: 3}|{'a': 1, 'a': 2}|odd_text|[odd_text]|[s, unicode]
'a,b,,c'.split(',')|' a  b '.split()|'a,b,c'.split(',', 1)|'a,b,c'.rsplit(',', 1)|'a b c'.split(none, 1)|' a b c '.rsplit(none, 1)|' a b c '.split(none, 1)|text.splitlines()|text.splitlines(true)|'a\\x1cb\\u2028c\\x85d'.splitlines()
s.strip()|s.lstrip()|s.rstrip()|'xxaxx'.strip('x')|'xyaxy'.lstrip('yx')|'abcba'.rstrip('ab')|spaces.strip()|[spaces|trim]|s.upper()|s.lower()|s.title()|"it's ǆ ok".title()|'hELLO wORLD'.capitalize()|unicode.upper()|unicode.lower()|unicode.title()|unicode.capitalize()
'abc'.startswith('ab')|'abc'.endswith(('x', 'c'))|'a-b-a'.replace('a', 'x')|'aaa'.replace('a', 'b', 2)|'abc'.replace('', '.')|'añb'.find('b')|'abc'.find('z')|'abcb'.rfind('b')|'banana'.count('an')|'ab'.count('')|', '.join(words)|'abc'.index('c')
'12'.isdigit()|'1²'.isdigit()|'½'.isdigit()|''.isdigit()|' '.isspace()|'AB1'.isupper()|'ab'.islower()|'abc'.removeprefix('a')|'abc'.removesuffix('c')|[1, 2, 1].count(1)|[1, 2].index(2)
d.get('b')|d.get('zz')|d.get('zz', 4)|d.items()|d.keys()|d.values()|d.items()|list
s|trim|s|length|list|length|d|length|undefined_name|length|undefined_name|trim|none|trim|words|join|words|join(', ')|people|join('-', 'name')|[1, none, 2.5]|join('/')
undefined_name|default('x')|none|default('x')|''|default('x')|''|default('x', true)|''|d('y', boolean=true)|undefined_name|default
s|upper|s|lower|'foo bar-baz (qux'|title|"they're"|title|'foo BAR'|capitalize|1|string|none|string|'abc'|first|'abc'|last|list|first|list|last|[]|first is defined|'abc'|list|d|list|'abc'|reverse|list|reverse|list
list|sort|list|sort(reverse=true)|words|sort|words|sort(case_sensitive=true)|people|sort(attribute='age')|map(attribute='name')|list|people|sort(attribute='name')|map(attribute='name')|list|people|sort(attribute='in.x,age')|map(attribute='name')|list
words|unique|list|[1, 1.0, true, 2]|unique|list|list|min|list|max|words|min|words|max(case_sensitive=true)|[]|max is defined|people|max(attribute='age')|people|min(attribute='name')|list|sum|people|sum(attribute='age')|people|sum('age', 10)|[0.1, 0.2]|sum
words|select('in', ['a', 'b'])|list|[0, 1, '', none]|select|list|[0, 1, '', none]|reject|list|list|select('odd')|list|list|reject('equalto', 3)|list|list|select('>', 1)|list|list|select('greaterthan', 1)|join(',')
people|selectattr('age', 'gt', 1)|map(attribute='name')|list|people|rejectattr('name', 'equalto', 'Bo')|map(attribute='age')|list|people|selectattr('in')|list|length|people|selectattr('in.x', 'eq', 2)|list|people|map(attribute='in.x', default='?')|list
people|map(attribute='name')|map('upper')|join(',')|words|map('replace', 'a', 'z')|list|['1', 'x']|map('int', default=9)|list|messages|selectattr('role', 'equalto', 'user')|list|length|messages|map(attribute='role')|unique|list
d|dictsort|d|dictsort(reverse=true)|{'a': 2, 'B': 1}|dictsort(by='value')|{'a': 2, 'B': 1}|dictsort(true)|d|items|list|undefined_name|items|list
d|tojson|none|tojson|1.0|tojson|numbers|tojson|odd_text|tojson|messages|tojson|odd_text|tojson(ensure_ascii=true)|d|tojson(indent=2)|d|tojson(indent='--')|[]|tojson(indent=4)|{'a': [], 'b': {}}|tojson(indent=1)|d|tojson(sort_keys=true)|d|tojson(separators=(',', ':'))|{1: 2, none: 3, true: 4, 1.5: 5}|tojson|(1, 2)|tojson|'</script>&\\''|tojson
'a\nb\n\nc'|indent|'a\nb\n\nc'|indent(2, true)|'a\nb\n\nc'|indent(2, blank=true)|'a\nb'|indent('> ')|''|indent|'a\n'|indent
'42'|int|' 4_2 '|int|'3.9'|int|'x'|int|'x'|int(5)|'0x1f'|int(base=16)|'1010'|int(0, 2)|3.9|int|-3.9|int|none|int|true|int|'1e3'|int|'1.5'|float|'x'|float|'inf'|float|' nan '|float|none|float(2)|3|float|'1_0.5'|float
2.5|round|3.5|round|2.675|round(2)|7|round|2.1|round(0, 'ceil')|2.19|round(1, 'floor')|-2.5|round|1e300|round|-3|abs|-2.5|abs|true|abs
'<a href="x">\\'&'|escape|('<' ~ ('<'|e))|('<'|e) + '<'|'<' + ('<b>'|safe)|('<b>'|safe) ~ '<'|('<b>'|safe)|escape|['<b>'|safe]|d|tojson|safe
undefined_name is defined|undefined_name is undefined|none is none|undefined_name is none|0 is none|'a' is string|('a'|safe) is string|1 is number|true is number|1.5 is float|1 is float|1 is integer|true is integer|true is boolean|1 is boolean|true is true|1 is true|false is false|0 is false
d is mapping|list is mapping|'a' is iterable|1 is iterable|undefined_name is iterable|none is iterable|'a' is sequence|d is sequence|d.items() is sequence|d.items() is iterable|undefined_name is sequence|range(2) is sequence|list is sequence
3 is odd|4 is even|3 is not even|6 is divisibleby 3|6 is divisibleby(4)|1 is eq 1|1 is equalto(2)|1 is ne 2|1 is lt 2|2 is ge 2|1 is in [1]|'a' is in 'abc'|1 is not in [2]|none is sameas none|1 is sameas true|'ab' is lower|'AB' is upper|range is callable|s is callable|not s is defined|not (1 is odd)
range(3)|list|range(1, 7, 2)|list|range(3, 0, -1)|list|range(0)|list|range(5)[2]|range(3)|length|dict(a=1, b=2)|dict([('a', 1)], c=3)|dict(d).b|namespace(a=1).a|namespace({'q': 2}).q|(1, 2, 3)|[1, 2,]|{'a': 1,}|range(2)|sum
1 + 'a'|'a' + 1|'a' + none|none + 'a'|undefined_name + 'a'|'a' + undefined_name|undefined_name.x|undefined_name['x']|d.missing.x|undefined_name()|none.x is defined|none.x.y|1 / 0|1 % 0|1 // 0|'a' < 1|none < 1|[1] + (2,)|-'a'|'a' - 'b'|[] in {}
none|length|1|length|1|list|none|list|1|join|undefined_name|tojson|{'a': undefined_name}|tojson|words|select('odd')|list|'a'|int|abs|'x'|abs|none|round|undefined_name|int|undefined_name|float|['a', 1]|sort|'a'.join([1])|''.split('')|'abc'.index('z')|dict(1)|raise_exception('no ' ~ s)
(list|map('upper'))|length|(list|select)|first|(words|map('upper'))|first|(list|map('string'))[0] is defined|(1 if (list|select('gt', 100)) else 2)|(d|items)|length|words|map|list|list|reverse|first|list|reverse|length
s[0:2]|s[none:3]|d[0:1] is defined|5[0] is defined|'abc'['upper']()|d['a'].x|d['get']('b')|'a.b'.split('.')|first|list.0|nested.1.0|nested|map('first')|list|nested|map('sum')|list|nested|sum(start=[])
"""

TEMPLATES = [
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}\n{% endfor %}",
    "{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{{ loop.previtem is defined }} {{ loop.cycle('a', 'b') }};{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}{% for x in undefined_name %}x{% else %}none{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}else{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}else{% endfor %}",
    "{% for x in [1] %}{% break %}{% else %}else{% endfor %}{% for x in [1] %}{% continue %}{% else %}else{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|items %}{{ k }}{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]], (4, 'xy')] %}{{ a }}{{ b }}{{ c }} {% endfor %}",
    "{% for (a, b) in nested %}{{ a + b }},{% endfor %}{% for c in 'añb' %}{{ c }}.{% endfor %}{% for x in 1, 2, %}{{ x }}{% endfor %}",
    "{% for x in nested %}{% for y in x %}{{ loop.index }}{{ y }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(x=1, l=[]) %}{% for i in list %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.x }}{{ ns.l }}{{ ns.zz is defined }}",
    "{% if yes %}{% set y = 5 %}{% endif %}{{ y }}{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (a, b) = (b, a) %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t }}",
    "{% set x %}a{{ i }}b{% endset %}[{{ x }}]{% set x | upper | replace('A', 'z') %} a{{ i }}b {% endset %}[{{ x }}]{{ x is string }}",
    "{% if no %}1{% elif none_value %}2{% elif yes %}3{% else %}4{% endif %}{% if no %}1{% else %}2{% endif %}{% if [] %}a{% endif %}",
    "{% macro m(a, b='B', c=none) %}({{ a }}|{{ b }}|{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(c=3, a=1) }}{{ m() }}{{ m(1)|upper }}{{ m(1) ~ m(2) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro outer(x) -%} {{ inner(x) }}{{ i }}{{ late }} {%- endmacro %}{% macro inner(x) %}<{{ x }}>{% endmacro %}{% set late = 'L' %}{{ outer(3) }}{{ outer(inner(4)) }}",
    "{% macro m(a) %}{% set i = 99 %}{{ i }}{{ a }}{% endmacro %}{{ m(1) }}{{ i }}{% macro k(x=i, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ k() }}{{ k(3) }}",
    "{% macro m() %}{% endmacro %}{{ m(1) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{{ a + 1 }}{% endmacro %}{{ m() }}",
    "a\n  {% if yes %}\n  b\n  {% endif %}\n c", "a\n  {%- if yes -%}\n  b\n  {%- endif -%}\n c", "a\n  {%+ if yes +%}\n  b\n  {%+ endif +%}\n c\n",
    "  {{ i }}  \n  {{- i -}}  \n x", "\n\n{% if yes %}\n\nx\n\n{% endif %}\n\n", "a {# c #} b\n  {# c #}\nd\n {#- c -#} \ne {#+ c +#}\nf", "x{# {{ i }} {% if %} #}y",
    "{% raw %}{{ i }} {% if %}{% endraw %}x", "a\n  {% raw %}\n {{ y }}\n  {% endraw %}\nb", "a {%- raw -%}  x  {%- endraw -%} b", "a\r\nb\rc{{ 'x\r\ny' }}\n", "no newline at end\n", "two\n\n",
    "{%- for m in messages -%}\n  {{- m.role -}}\n{%- endfor -%}\n", "{{ '{{' }}{{ '%}' }}{{ '}}' }}", "{{ {'a': {'b': 1}}.a.b }}", "{{ {'a': {'b': 1}} }}", "{ { }} %} #} {x}",
    "{% generation %}a{% endgeneration %}", "x{% for m in messages %}{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}\n{% endfor %}",
    "é{% generation %}ü{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}{% for x in list %}{%- generation -%} {{ x }}{{ loop.index }} {%- endgeneration -%}{% endfor %}",
    "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %p %I %y %-d %%') }}",
    "{{ raise_exception('stop') }}", "{% if messages[0].role != 'user' %}{{ raise_exception('must start with user') }}{% endif %}",
    "{% set messages = messages[1:] %}{{ messages|length }}{{ messages[0].role }}", "{% set ns = namespace(a=1) %}{% set ns.a = ns %}{{ ns.a.a is defined }}",
    "{% set i.x = 1 %}", "{% set d.x = 1 %}", "{% set ns = namespace(_x=1) %}", "{% set a, b = 1 %}", "{% set a, b = [1] %}", "{% for a, b in [1] %}{% endfor %}",
    "{{ loop is defined }}{% for x in list %}{{ loop is defined }}{% endfor %}{{ x is defined }}", "{% for x in list %}{% if loop.last %}{{ loop.index0 - 1 }}{{ list[loop.index0 - 1] }}{% endif %}{% endfor %}",
    "{{ 1, 2 }}", "{{ (1) }}", "{{- ' x ' -}}  y", "{{ i\n + \n 1 }}", "{%\nif yes\n%}z{%\nendif\n%}", "{{ 'a' if yes }}{{ 'b' if no }}c", "{{ 1 is odd and 2 is even or 3 is even }}", "{{ -1 | abs }}{{ (-1) | abs }}{{ 2 ** -1 | abs }}", "{{ 'a' ~ 'b' | upper }}{{ 1 + 2 | string | length }}{{ not i is odd }}",
    "{{ 'a' in 'abc' and not 'z' in 'abc' }}{{ 1 + 1 ~ 1 + 1 }}{{ 2 * 3 ~ 4 }}", "{% if i is odd %}o{% endif %}{% if s is not string %}x{% else %}y{% endif %}", "{{ messages | map(attribute='content') | map('trim') | join('|') }}",
    "{% if 'x' in undefined_name %}1{% else %}2{% endif %}", "{% set x = undefined_name %}{{ x is defined }}{{ x }}", "{% set m = messages[0].copied if messages[0].copied is defined else 'd' %}{{ m }}",
    # Malformed: errors on both sides.
    "{% if %}", "{% if yes %}", "{% for x in list %}", "{% for x list %}{% endfor %}", "{% endif %}", "{% else %}", "{{ 1 +", "{{ 1 + }}", "{{ }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ 'a }}", "{# x", "{% raw %}x", "{% set %}", "{% set 1 = 2 %}", "{% set x %}", "{% macro %}{% endmacro %}", "{% macro m( %}{% endmacro %}", "{% nosuchtag %}", "{{ x|nosuchfilter }}", "{{ x is nosuchtest }}", "{{ 1 is }}", "{% break %}", "{{ a b }}", "{{ a. }}", "{{ a[ }}", "{{ a[] }}", "{% if yes %}{% endfor %}", "{{ {1 2} }}", "{{ {'a': } }}", "{{ f(a=1, 2) }}", "{% for x in list %}{% else %}{% else %}{% endfor %}", "{{ 1 ++ }}", "{{ not }}", "{{ is }}x{{", "{{ $ }}", "{% if a = b %}{% endif %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% set true = 1 %}", "{% generation %}", "{% endgeneration %}",
]

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

INST = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system_message = false %}{% endif %}
{%- for message in rest %}
  {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('Roles must take turns: user, assistant, user, ...') }}
  {%- endif %}
  {%- if loop.index0 == 0 and system_message != false %}
    {%- set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}
  {%- else %}{% set content = message['content'] %}{% endif %}
  {%- if message['role'] == 'user' %}{{ '[INST] ' + content.strip() + ' [/INST]' }}{% else %}{{ ' ' ~ content.strip() ~ ' ' ~ eos_token }}{% endif %}
{%- endfor %}"""

TOOLED = """{%- macro show(value, depth=0) %}
{%- if value is mapping %}{{ '{' }}{% for k, v in value|dictsort %}{{ k }}: {{ show(v, depth + 1) }}{{ ', ' if not loop.last }}{% endfor %}{{ '}' }}
{%- elif value is iterable and value is not string %}[{% for v in value %}{{ show(v, depth + 1) }};{% endfor %}]
{%- else %}{{ value | string }}{% endif %}
{%- endmacro %}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{% endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}{{- tool | tojson }}
        {{- show(tool.function) }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not (message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.multi_step = false %}{%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}{%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or reasoning) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}{{- '<|im_start|>' + message.role + '\\n' + content }}{%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or not loop.first %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

HEADERS = """{{- bos_token }}
{%- if not date_string is defined %}{% if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{% endif %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}{{- system_message }}{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("One call at a time") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{{- call.name + "(" }}
        {%- for name, value in call.arguments | items %}{{- name + '="' ~ value ~ '"' }}{%- if not loop.last %}{{- ", " }}{%- endif %}{%- endfor %}
        {{- ")<|eom_id|>" }}
    {%- else %}{{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}{%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}{{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

TAGGED = """{%- for message in messages %}
{{- '<|' + message.role + '|>\\n' }}
{%- if message.role == 'assistant' %}{% generation %}{{ message.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ message.content + eos_token }}{% endif %}
{{ '\\n' if not loop.last }}
{%- endfor %}"""


# Thoughts of the answers behind the last question are shown, earlier ones are cut; contents are text or parts; calls are tags.
THINKING = """{%- macro text_of(content) %}
    {%- if content is string %}{{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for part in content %}
            {%- if part.type == 'image' or 'image_url' in part %}{{- '<|picture|>' }}
            {%- elif 'text' in part %}{{- part.text }}
            {%- else %}{{- raise_exception('a part of an unknown kind') }}{%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}{{- '' }}
    {%- else %}{{- raise_exception('a content of an unknown kind') }}{%- endif %}
{%- endmacro %}
{%- if not messages %}{{- raise_exception('no messages') }}{%- endif %}
{%- set first = text_of(messages[0].content) | trim if messages[0].role == 'system' else '' %}
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|im_start|>system\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools>' ~ ('\\n\\n' ~ first if first else '') ~ '<|im_end|>\\n' }}
{%- elif first %}{{- '<|im_start|>system\\n' + first + '<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(asked=-1) %}
{%- for message in messages %}
    {%- set said = text_of(message.content) | trim %}
    {%- if message.role == 'user' and not (said.startswith('<tool_response>') and said.endswith('</tool_response>')) %}{%- set ns.asked = loop.index0 %}{%- endif %}
{%- endfor %}
{%- if ns.asked < 0 %}{{- raise_exception('nobody asks') }}{%- endif %}
{%- for message in messages %}
    {%- set content = text_of(message.content) | trim %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}{{- raise_exception('a system message comes first') }}{%- endif %}
    {%- elif message.role == 'user' %}{{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set thought = message.reasoning_content if message.reasoning_content is string else '' %}
        {%- if not thought and '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.asked %}{{- '<think>\\n' + thought | trim + '\\n</think>\\n\\n' }}{%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function if call.function is defined else call %}
            {{- ('\\n\\n' if loop.first and content else '\\n' if not loop.first else '') + '<tool_call>\\n<function=' + call.name + '>\\n' }}
            {%- for name, value in call.arguments | items %}
                {{- '<parameter=' + name + '>\\n' }}
                {{- value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem and loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}{{- raise_exception('an unknown role') }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n<think>\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""


def chats():
    """Conversations of all kinds."""
    plain = [m for m in MESSAGES if m["role"] != "system"]
    thoughts = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "<think>\nfirst\n</think>\n\nYes."},
                {"role": "user", "content": "Two?"}, {"role": "assistant", "content": "No.", "reasoning_content": "second"}]
    return [MESSAGES, plain, plain[:1], plain[:2], plain[1:], [], TOOL_CHAT, [{"role": "user", "content": ""}], [{"role": "user", "content": None}],
            [{"role": "user", "content": [{"type": "text", "text": "x"}]}], thoughts]


def chat_cases(templates):
    """[(template, variables)] of whole chat templates: with tools and without, thinking off, and what begins an answer."""
    return [(template, {"messages": messages, "tools": tools, "documents": None, **extra, "add_generation_prompt": prompt, "bos_token": "<s>",
                        "eos_token": "</s>"})
            for template in templates for messages in chats() for tools in (None, TOOLS) for extra in ({}, {"enable_thinking": False}, {"enable_thinking": True})
            for prompt in (False, True)]


def cases():
    """[(template, variables)]."""
    found = []
    for line in EXPRESSIONS.strip().splitlines():
        parts = line.split("|")
        # "|" separates cases and filters alike: every run of parts from every start is a case where it parses.
        found += [("{{ " + "|".join(parts[i:j]) + " }}", VALUES)
                  for i in range(len(parts)) for j in range(i + 1, min(i + 4, len(parts)) + 1)]
    found += [(template, VALUES) for template in TEMPLATES]
    return found + chat_cases((CHATML, INST, TOOLED, HEADERS, TAGGED, THINKING))
