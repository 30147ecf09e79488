"""Edits of Python code, as pairs of texts: those without an effect, and those that change what `f` does.

A text may hold several modules: a line `--- name` begins the module of that name; what stands above is `pipeline`.
"""

# ruff: noqa: E501
from __future__ import annotations

# A function with parameters of each kind that a call gives by name.
G = "def g(a, b=2, *, c=None):\n    return a + b if c is None else c\n"

HARMLESS = {
    "a method that nothing calls": (
        "class F:\n    def __call__(self, x):\n        return x\nf = F()",
        "class F:\n    def __call__(self, x):\n        return x\n    def other(self):\n        return 2\nf = F()",
    ),
    "a method that nothing calls, of a bound one's class": (
        "class F:\n    def a(self, x):\n        return x\n    def b(self):\n        return 1\nf = F().a",
        "class F:\n    def a(self, x):\n        return x\n    def b(self):\n        return 2\nf = F().a",
    ),
    "a default written out": (f"{G}def f(x):\n    return g(x)", f"{G}def f(x):\n    return g(x, 2)"),
    "a default written out by name": (f"{G}def f(x):\n    return g(x)", f"{G}def f(x):\n    return g(x, b=2, c=None)"),
    "an argument by name": (f"{G}def f(x):\n    return g(x, 3)", f"{G}def f(x):\n    return g(a=x, b=3)"),
    "an argument by name behind a default": (
        f"{G}def f(x):\n    return g(x, c=x())",
        f"{G}def f(x):\n    return g(x, 2, c=x())",
    ),
    "an argument by name, of a module's function": (
        "import helpers\ndef f(x):\n    return helpers.g(x, 3)\n--- helpers\n" + G,
        "import helpers\ndef f(x):\n    return helpers.g(x, b=3)\n--- helpers\n" + G,
    ),
    "a comment": ("def f(x):\n    return x + 1", "# new\ndef f(x):\n    return x + 1  # one"),
    "a docstring": ("def f(x):\n    return x + 1", 'def f(x):\n    """One more."""\n    return x + 1'),
    "another docstring": ('def f(x):\n    "a"\n    return "b"', 'def f(x):\n    "c"\n    return "b"'),
    "a docstring of a function without constants": ("def f(x):\n    return x", 'def f(x):\n    "same"\n    return x'),
    "a docstring where None is used": ("def f(x):\n    return None", 'def f(x):\n    "d"\n    return None'),
    "the function's name": ("def g(x):\n    return x\nf = g", "def h(x):\n    return x\nf = h"),
    "a lambda as a function": ("f = lambda x: x * 2", "def f(x):\n    return x * 2"),
    "a local variable's name": ("def f(x):\n    y = x + 1\n    return y", "def f(x):\n    z = x + 1\n    return z"),
    "two local variables' names": (
        "def f(x):\n    a = x\n    b = a + 1\n    return a - b",
        "def f(x):\n    b = x\n    a = b + 1\n    return b - a",
    ),
    "a parameter's name": ("def f(x):\n    return x + 1", "def f(value):\n    return value + 1"),
    "a loop variable's name": (
        "def f(xs):\n    return [x + 1 for x in xs]",
        "def f(xs):\n    return [each + 1 for each in xs]",
    ),
    "type hints": (
        "def f(x, y=2):\n    z = x\n    return z + y",
        "def f(x: int, y: 'int' = 2) -> int:\n    z: int = x\n    return z + y",
    ),
    "type hints of a function inside": (
        "def f(x):\n    def g(y, k=1):\n        return x + y + k\n    return g(1)",
        "def f(x):\n    def g(y: dict[str, int | None], k: 'int' = 1) -> list[int]:\n        return x + y + k\n    return g(1)",
    ),
    "type hints by strings inside": (
        "def f(x):\n    def g(y):\n        return y\n    return g(x)",
        "from __future__ import annotations\ndef f(x):\n    def g(y: int) -> int:\n        return y\n    return g(x)",
    ),
    "line breaks": (
        "def f(x, y):\n    return x if x > y and y > 0 else y",
        "def f(\n    x,\n    y,\n):\n    return (\n        x\n        if x > y\n        and y > 0\n        else y\n    )",
    ),
    "an if in one line": (
        "def f(x):\n    if x: return 1\n    return 2",
        "def f(x):\n    if x:\n        return 1\n\n    return 2",
    ),
    "a call over several lines": (
        "def f(x, y):\n    return max(x, y, min(x, y))",
        "def f(x, y):\n    return max(\n        x,\n        y,\n        min(\n            x,\n            y,\n        ),\n    )",
    ),
    "a loop over several lines": (
        "def f(xs):\n    t = 0\n    while t < 5 and xs: t += 1; xs = xs[1:]\n    return t",
        "def f(xs):\n    t = 0\n    while (\n        t < 5\n        and xs\n    ):\n        t += 1\n\n        xs = xs[1:]\n    return t",
    ),
    "try in other lines": (
        "def f(x):\n    try: return int(x)\n    except ValueError: return None\n    finally: x = 1",
        "def f(x):\n    try:\n        return int(x)\n    except ValueError:\n        return None\n\n    finally:\n        x = 1",
    ),
    "other quotes": ("def f(x):\n    return x + 'a'", 'def f(x):\n    return x + "a"'),
    "another spelling of a number": ("def f(x):\n    return x + 1000", "def f(x):\n    return x + 1_000"),
    "a folded constant": (
        "def f(x):\n    return x * 60 * 0 + 86400",
        "def f(x):\n    return x * 60 * 0 + 24 * 60 * 60",
    ),
    "pass and dead code": (
        "def f(x):\n    return x",
        "def f(x):\n    pass\n    if False:\n        x = 2\n    return x",
    ),
    "a global's name": ("RATE = 2\ndef f(x):\n    return x * RATE", "FACTOR = 2\ndef f(x):\n    return x * FACTOR"),
    "a constant gets a name": ("def f(x):\n    return x * 1.5", "RATE = 1.5\ndef f(x):\n    return x * RATE"),
    "a global that is not read": ("A = 1\ndef f(x):\n    return x", "A = 2\nB = 3\ndef f(x):\n    return x"),
    "a helper's name": (
        "def g(x):\n    return x + 1\ndef f(x):\n    return g(x)",
        "def h(x):\n    return x + 1\ndef f(x):\n    return h(x)",
    ),
    "the order of helpers": (
        "def g(x):\n    return x + 1\ndef h(x):\n    return x - 1\ndef f(x):\n    return g(h(x))",
        "def h(x):\n    return x - 1\ndef f(x):\n    return g(h(x))\ndef g(x):\n    return x + 1",
    ),
    "a helper that is not called": (
        "def f(x):\n    return x",
        "def g(x):\n    return 7\ndef f(x):\n    return x",
    ),
    "a helper moves to another module": (
        "def scale(x):\n    return x * 3\ndef f(x):\n    return scale(x)",
        "from helpers import scale\ndef f(x):\n    return scale(x)\n--- helpers\ndef scale(x):\n    return x * 3",
    ),
    "from helpers import scale, or helpers.scale": (
        "from helpers import scale\ndef f(x):\n    return scale(x)\n--- helpers\ndef scale(x):\n    return x * 3",
        "import helpers\ndef f(x):\n    return helpers.scale(x)\n--- helpers\ndef scale(x):\n    return x * 3",
    ),
    "an import as another name": (
        "import helpers\ndef f(x):\n    return helpers.scale(x)\n--- helpers\ndef scale(x):\n    return x * 3",
        "import helpers as h\ndef f(x):\n    return h.scale(x)\n--- helpers\ndef scale(x):\n    return x * 3",
    ),
    "an import moves into the function": (
        "import helpers\ndef f(x):\n    return helpers.scale(x)\n--- helpers\ndef scale(x):\n    return x * 3",
        "def f(x):\n    import helpers\n    return helpers.scale(x)\n--- helpers\ndef scale(x):\n    return x * 3",
    ),
    "from an import inside the function": (
        "from helpers import scale, RATE\ndef f(x):\n    return scale(x) * RATE\n--- helpers\nRATE = 2\ndef scale(x):\n    return x * 3",
        "def f(x):\n    from helpers import RATE as R, scale as s\n    return s(x) * R\n--- helpers\nRATE = 2\ndef scale(x):\n    return x * 3",
    ),
    "a module of the standard library by another way": (
        "from math import sqrt\ndef f(x):\n    return sqrt(x)",
        "import math\ndef f(x):\n    return math.sqrt(x)",
    ),
    "an unused name in a module that is used": (
        "import helpers\ndef f(x):\n    return helpers.scale(x)\n--- helpers\ndef scale(x):\n    return x * 3",
        "import helpers\ndef f(x):\n    return helpers.scale(x)\n--- helpers\nOTHER = 9\ndef scale(x):\n    return x * 3",
    ),
    "a module's name": (
        "import helpers\ndef f(x):\n    return helpers.RATE * x\n--- helpers\nRATE = 2",
        "import settings\ndef f(x):\n    return settings.RATE * x\n--- settings\nRATE = 2",
    ),
    "a captured variable's name": (
        "def make(limit, rate):\n    def f(x):\n        return x * rate > limit\n    return f\nf = make(3, 4)",
        "def make(zz, aa):\n    def f(x):\n        return x * aa > zz\n    return f\nf = make(3, 4)",
    ),
    "captured variables of functions inside": (
        "def f(x):\n    b = x\n    c = 1\n    def g():\n        return b + c\n    return g()",
        "def f(x):\n    z = x\n    a = 1\n    def g():\n        return z + a\n    return g()",
    ),
    "a captured value becomes a global": (
        "def make(limit):\n    def f(x):\n        return x > limit\n    return f\nf = make(3)",
        "LIMIT = 3\ndef f(x):\n    return x > LIMIT",
    ),
    "the order of a set": (
        "KINDS = {'a', 'b', 'c'}\ndef f(x):\n    return x in KINDS",
        "KINDS = {'c', 'a', 'b'}\ndef f(x):\n    return x in KINDS",
    ),
    "the order of a set of constants": (
        "def f(x):\n    return x in {'a', 'b', 'c'}",
        "def f(x):\n    return x in {'c', 'b', 'a'}",
    ),
    "an unused entry of a mapping": (
        "C = {'rate': 2}\ndef f(x):\n    return x * C['rate']",
        "C = {'rate': 2, 'other': 3}\ndef f(x):\n    return x * C['rate']",
    ),
    "a decorator that changes nothing": (
        "def f(x):\n    return x",
        "def mark(g):\n    return g\n@mark\ndef f(x):\n    return x",
    ),
    "the order of decorators that change nothing": (
        "def a(g):\n    return g\ndef b(g):\n    return g\n@a\n@b\ndef f(x):\n    return x",
        "def a(g):\n    return g\ndef b(g):\n    return g\n@b\n@a\ndef f(x):\n    return x",
    ),
    "a docstring and hints in a class": (
        "class C:\n    rate = 2\n    def __call__(self, x):\n        return x * self.rate\nf = C()",
        "class C:\n    'Doc.'\n    rate: int = 2\n    def __call__(self, x: int) -> int:\n        'Doc.'\n        return x * self.rate\nf = C()",
    ),
    "a class's name": (
        "class C:\n    def __call__(self, x):\n        return x\nf = C()",
        "class D:\n    def __call__(self, x):\n        return x\nf = D()",
    ),
    "the order of methods": (
        "class C:\n    def g(self, x):\n        return x\n    def __call__(self, x):\n        return self.g(x)\nf = C()",
        "class C:\n    def __call__(self, x):\n        return self.g(x)\n    def g(self, x):\n        return x\nf = C()",
    ),
    "a class inside a function": (
        "def f(x):\n    class C:\n        k = 1\n        def g(self):\n            return x\n    return C().g()",
        "def f(x):\n    class D:\n        'Doc.'\n        k = 1\n        def g(self):\n            'Doc.'\n            return x\n    return D().g()",
    ),
    "an unused method of a captured object": (
        "class C:\n    def g(self, x):\n        return x\nc = C()\ndef f(x):\n    return c.g(x)",
        "class C:\n    def g(self, x):\n        return x\n    def other(self):\n        return 1\nc = C()\ndef f(x):\n    return c.g(x)",
    ),
    "a logger of another name": (
        "import logging\nlog = logging.getLogger('a')\ndef f(x):\n    log.info(x)\n    return x",
        "import logging\nlog = logging.getLogger('b')\ndef f(x):\n    log.info(x)\n    return x",
    ),
    "a recursive function's name": (
        "def g(x):\n    return g(x - 1) if x else 0\nf = g",
        "def h(x):\n    return h(x - 1) if x else 0\nf = h",
    ),
    "two functions that call each other": (
        "def g(x):\n    return h(x - 1) if x else 0\ndef h(x):\n    return g(x - 2)\nf = g",
        "def b(x):\n    return a(x - 2)\ndef a(x):\n    return b(x - 1) if x else 0\nf = a",
    ),
    "a helper in two equal copies": (
        "def g(x):\n    return x + 1\ndef f(x):\n    return g(g(x))",
        "def g(x):\n    return x + 1\ndef h(x):\n    return x + 1\ndef f(x):\n    return g(h(x))",
    ),
    "the type hints of a dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    rate: int = 2\nc = C()\ndef f(x):\n    return x * c.rate",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    rate: 'float' = 2\nc = C()\ndef f(x):\n    return x * c.rate",
    ),
    "how an environment variable is imported": (
        "import os\ndef f(x):\n    return os.environ['HEADRACE_A'] + x",
        "from os import environ\ndef f(x):\n    return environ['HEADRACE_A'] + x",
    ),
    "a compiled pattern's name": (
        "import re\nP = re.compile('a+')\ndef f(x):\n    return P.match(x)",
        "import re\nPATTERN = re.compile('a+')\ndef f(x):\n    return PATTERN.match(x)",
    ),
    "the sense of a condition": (
        "def f(x):\n    if x is None:\n        return 1\n    return 2",
        "def f(x):\n    if x is not None:\n        return 2\n    return 1",
    ),
    "a docstring next to getattr": (
        "def f(x):\n    return getattr(x, 'a', 1)",
        "def f(x):\n    'Doc.'\n    return getattr(x, 'a', 1)",
    ),
    "not in for in": (
        "def f(x):\n    if x in (1, 2):\n        return 1\n    return 2",
        "def f(x):\n    if x not in (1, 2):\n        return 2\n    return 1",
    ),
    "an else that is not needed": (
        "def f(x):\n    if x > 1:\n        return 1\n    return 2",
        "def f(x):\n    if x > 1:\n        return 1\n    else:\n        return 2",
    ),
    "a function of a library by another way": (
        "import pandas as pd\ndef f(x):\n    return pd.isna(x)",
        "from pandas import isna\ndef f(x):\n    return isna(x)",
    ),
    "a class of a library by another way": (
        "import datetime\ndef f(x):\n    return datetime.datetime.fromisoformat(x)",
        "from datetime import datetime\ndef f(x):\n    return datetime.fromisoformat(x)",
    ),
    "entries of a mapping that is only looked up": (
        "C = {'a': 1, 'b': 2}\ndef f(x):\n    return C[x]",
        "C = {'b': 2, 'a': 1}\ndef f(x):\n    return C[x]",
    ),
    "a docstring under a wrapping decorator": (
        "import functools\ndef d(g):\n    @functools.wraps(g)\n    def i(x):\n        return g(x) + 1\n    return i\n@d\ndef f(x):\n    return x",
        "import functools\ndef deco(func):\n    @functools.wraps(func)\n    def wrapper(value):\n        return func(value) + 1\n    return wrapper\n@deco\ndef f(x):\n    'Doc.'\n    return x",
    ),
    "a decorator that keeps the name": (
        "def d(g):\n    def i(x):\n        return g(x) + 1\n    return i\n@d\ndef f(x):\n    return x",
        "import functools\ndef d(g):\n    @functools.wraps(g)\n    def i(x):\n        return g(x) + 1\n    return i\n@d\ndef f(x):\n    return x",
    ),
    "a guard for programs": (
        "def f(x):\n    return x",
        "def f(x):\n    return x\nif __name__ == '__main__':\n    print(f(1))",
    ),
    "an overload": (
        "def f(x):\n    return x",
        "from typing import overload\n@overload\ndef f(x: int) -> int: ...\n@overload\ndef f(x: str) -> str: ...\ndef f(x):\n    return x",
    ),
    "a branch inside a branch": (
        "def f(x, y):\n    if x:\n        if y:\n            return 1\n    return 2",
        "def f(x, y):\n    if x and y:\n        return 1\n    return 2",
    ),
    "an if in place of a conditional expression": (
        "def f(x):\n    if x > 1:\n        r = 1\n    else:\n        r = 2\n    return r",
        "def f(x):\n    r = 1 if x > 1 else 2\n    return r",
    ),
    "the text of a log line": (
        "import logging\nlog = logging.getLogger('a')\ndef f(x):\n    log.info('one %s', x)\n    return x",
        "import logging\nlog = logging.getLogger('a')\ndef f(x):\n    log.warning(f'two: {x}')\n    return x",
    ),
    "a log line of the module logging": (
        "import logging\ndef f(x):\n    return x",
        "import logging\ndef f(x):\n    logging.info('seen')\n    logging.getLogger(__name__).info('seen')\n    return x",
    ),
    "the text of a print": (
        "def f(x):\n    print('one', x)\n    return x",
        "def f(x):\n    print('two')\n    return x",
    ),
    "a private method's name in another class": (
        "class C:\n    def __g(self, x):\n        return x\n    def __call__(self, x):\n        return self.__g(x)\nf = C()",
        "class C:\n    def __call__(self, x):\n        return self.__g(x)\n    def __g(self, x):\n        return x\nf = C()",
    ),
    "a lambda next to another on its line": (
        "f = lambda x: x + 1",
        "g, f = (lambda x: x + 2), (lambda x: x + 1)",
    ),
    "a lambda inside another on its line": (
        "f = lambda x: x + 1",
        "f = (lambda: (lambda x: x + 1))()",
    ),
}

# Each with a part of what is said about it.
DANGEROUS = {
    "a method that Spark calls by its name": (
        "class F:\n    def process(self, x):\n        return x\nf = F()",
        "class F:\n    def process(self, x):\n        return x + 1\nf = F()",
        "process",
    ),
    "an argument by the name of another parameter": (
        f"{G}def f(x):\n    return g(x, 3)",
        f"{G}def f(x):\n    return g(x, c=3)",
        "code differs",
    ),
    "another value than the default": (
        f"{G}def f(x):\n    return g(x)",
        f"{G}def f(x):\n    return g(x, 3)",
        "code differs",
    ),
    "a default of another type": (
        f"{G}def f(x):\n    return g(x)",
        f"{G}def f(x):\n    return g(x, 2.0)",
        "code differs",
    ),
    "a list like the default": (
        "def g(a, b=[]):\n    b.append(a)\n    return b\ndef f(x):\n    return g(x)",
        "def g(a, b=[]):\n    b.append(a)\n    return b\ndef f(x):\n    return g(x, [])",
        "code differs",
    ),
    "arguments that are computed in another order": (
        f"{G}def f(x):\n    return g(next(x), next(x))",
        f"{G}def f(x):\n    return g(b=next(x), a=next(x))",
        "code differs",
    ),
    "an argument by name, where another function may be called": (
        f"{G}def put(h):\n    global g\n    g = h\ndef f(x):\n    put(x)\n    return g(x, 3)",
        f"{G}def put(h):\n    global g\n    g = h\ndef f(x):\n    put(x)\n    return g(x, b=3)",
        "",
    ),
    "a default written out, of a function of a library": (
        "import json\ndef f(x):\n    return json.dumps(x)",
        "import json\ndef f(x):\n    return json.dumps(x, indent=None)",
        "code differs",
    ),
    "a default written out and changed": (
        f"{G}def f(x):\n    return g(x)",
        f"{G.replace('b=2', 'b=3')}def f(x):\n    return g(x, 2)",
        "code differs",
    ),
    "what a print computes": (
        "def f(x):\n    print(x)\n    return x",
        "def f(x):\n    print(x.pop())\n    return x",
        "its code differs: `print(x)` became `print(x.pop())`",
    ),
    "a print that is the project's": (
        "def print(x):\n    x.pop()\ndef f(x):\n    print(x)\n    return x",
        "def print(x):\n    x.pop()\ndef f(x):\n    return x",
        "its code differs: `print(x)` is gone",
    ),
    "a match": (
        "def f(x):\n    match x:\n        case [a, *_]:\n            return a\n        case {'k': a, **rest}:\n            return rest",
        "def f(x):\n    match x:\n        case [*_, a]:\n            return a\n        case {'k': a, **rest}:\n            return rest",
        "its code differs",
    ),
    "a private method": (
        "class C:\n    def __g(self, x):\n        return x\n    def __call__(self, x):\n        return self.__g(x)\nf = C()",
        "class C:\n    def __g(self, x):\n        return x + 1\n    def __call__(self, x):\n        return self.__g(x)\nf = C()",
        "its code differs",
    ),
    "a generator whose yield is never reached": (
        "def f(x):\n    return x",
        "def f(x):\n    return x\n    yield",
        "its code differs",
    ),
    "a variable that a dead line makes local": (
        "a = 1\ndef f(x):\n    return a",
        "a = 1\ndef f(x):\n    return a\n    a = 2",
        "its code differs",
    ),
    "a constant": ("def f(x):\n    return x * 2", "def f(x):\n    return x * 3", "the constant 2 became 3"),
    "a text": ("def f(x):\n    return x + 'a'", "def f(x):\n    return x + 'b'", "the constant 'a' became 'b'"),
    "a number's type": ("def f(x):\n    return x * 2", "def f(x):\n    return x * 2.0", "the constant 2 became 2.0"),
    "True for 1": ("def f(x):\n    return x == 1", "def f(x):\n    return x == True", "the constant 1 became True"),
    "an operator": ("def f(x):\n    return x + 2", "def f(x):\n    return x - 2", "its code differs"),
    "a comparison": ("def f(x):\n    return x > 2", "def f(x):\n    return x >= 2", "its code differs"),
    "swapped operands": ("def f(x, y):\n    return x - y", "def f(x, y):\n    return y - x", "its code differs"),
    "swapped parameters": ("def f(x, y):\n    return x - y", "def f(y, x):\n    return x - y", "its code differs"),
    "swapped branches": (
        "def f(x):\n    return 1 if x else 2",
        "def f(x):\n    return 2 if x else 1",
        "the constant 1 became 2",
    ),
    "and for or": ("def f(x, y):\n    return x and y", "def f(x, y):\n    return x or y", "its code differs"),
    "a method": ("def f(x):\n    return x.lower()", "def f(x):\n    return x.upper()", "its code differs"),
    "an attribute": ("def f(x):\n    return x.a", "def f(x):\n    return x.b", "its code differs"),
    "a builtin": ("def f(x):\n    return min(x)", "def f(x):\n    return max(x)", "builtins.max"),
    "a builtin is replaced": (
        "def f(x):\n    return len(x)",
        "def len(x):\n    return 0\ndef f(x):\n    return len(x)",
        "global len was builtins.len",
    ),
    "a default": (
        "def f(x, y=1):\n    return x + y",
        "def f(x, y=2):\n    return x + y",
        "the default of `y` was 1 and is 2",
    ),
    "a keyword's default": (
        "def f(x, *, y=1):\n    return x + y",
        "def f(x, *, y=2):\n    return x + y",
        "the default of `y` was 1 and is 2",
    ),
    "a global": (
        "RATE = 1.5\ndef f(x):\n    return x * RATE",
        "RATE = 2.0\ndef f(x):\n    return x * RATE",
        "global RATE was 1.5 and is 2.0",
    ),
    "two globals are swapped": (
        "A = 1\nB = 2\ndef f(x):\n    return x * A - B",
        "A = 1\nB = 2\ndef f(x):\n    return x * B - A",
        "global",
    ),
    "an entry of a mapping": (
        "RATES = {'a': 1}\ndef f(x):\n    return RATES.get(x)",
        "RATES = {'a': 2}\ndef f(x):\n    return RATES.get(x)",
        "global RATES was {'a': 1} and is {'a': 2}",
    ),
    "an entry by its key": (
        "C = {'rate': 2}\ndef f(x):\n    return x * C['rate']",
        "C = {'rate': 3}\ndef f(x):\n    return x * C['rate']",
        "global C['rate'] was 2 and is 3",
    ),
    "a list": (
        "L = [1, 2]\ndef f(x):\n    return x in L",
        "L = [1, 3]\ndef f(x):\n    return x in L",
        "global L was [1, 2] and is [1, 3]",
    ),
    "the order of a list": (
        "L = [1, 2]\ndef f(x):\n    return L[x]",
        "L = [2, 1]\ndef f(x):\n    return L[x]",
        "global L was [1, 2] and is [2, 1]",
    ),
    "an element of a set": (
        "S = {1, 2}\ndef f(x):\n    return x in S",
        "S = {1, 3}\ndef f(x):\n    return x in S",
        "global S was",
    ),
    "a large mapping": (
        "M = {n: n for n in range(1000)}\ndef f(x):\n    return M.get(x)",
        "M = {n: n + (n == 999) for n in range(1000)}\ndef f(x):\n    return M.get(x)",
        "global M was dict of 1000",
    ),
    "a helper's code": (
        "def g(x):\n    return x + 1\ndef f(x):\n    return g(x)",
        "def g(x):\n    return x - 1\ndef f(x):\n    return g(x)",
        "function pipeline.g: its code differs",
    ),
    "a constant of a helper's helper": (
        "def h(x):\n    return x + 1\ndef g(x):\n    return h(x)\ndef f(x):\n    return g(x)",
        "def h(x):\n    return x + 2\ndef g(x):\n    return h(x)\ndef f(x):\n    return g(x)",
        "function pipeline.h: the constant 1 became 2",
    ),
    "another helper": (
        "def g(x):\n    return x + 1\ndef h(x):\n    return x + 2\ndef f(x):\n    return g(x)",
        "def g(x):\n    return x + 1\ndef h(x):\n    return x + 2\ndef f(x):\n    return h(x)",
        "the constant 1 became 2",
    ),
    "a function of an imported module": (
        "import helpers\ndef f(x):\n    return helpers.scale(x)\n--- helpers\ndef scale(x):\n    return x * 3",
        "import helpers\ndef f(x):\n    return helpers.scale(x)\n--- helpers\ndef scale(x):\n    return x / 3",
        "function helpers.scale: its code differs",
    ),
    "a constant of an imported module": (
        "import config\ndef f(x):\n    return x * config.RATE\n--- config\nRATE = 1",
        "import config\ndef f(x):\n    return x * config.RATE\n--- config\nRATE = 2",
        "config.RATE was 1 and is 2",
    ),
    "a constant of a module imported inside": (
        "def f(x):\n    import config\n    return x * config.RATE\n--- config\nRATE = 1",
        "def f(x):\n    import config\n    return x * config.RATE\n--- config\nRATE = 2",
        "config.RATE was 1 and is 2",
    ),
    "a constant of a module that a module imports": (
        "import helpers\ndef f(x):\n    return helpers.g(x)\n--- helpers\nimport config\ndef g(x):\n    return x * config.RATE\n--- config\nRATE = 1",
        "import helpers\ndef f(x):\n    return helpers.g(x)\n--- helpers\nimport config\ndef g(x):\n    return x * config.RATE\n--- config\nRATE = 2",
        "function helpers.g: config.RATE was 1 and is 2",
    ),
    "a module that is passed on": (
        "import config\ndef g(m, name):\n    return m\ndef f(x):\n    return g(config, x)\n--- config\nRATE = 1",
        "import config\ndef g(m, name):\n    return m\ndef f(x):\n    return g(config, x)\n--- config\nRATE = 2",
        "attribute `RATE` was 1 and is 2",
    ),
    "a captured value": (
        "def make(limit):\n    def f(x):\n        return x > limit\n    return f\nf = make(3)",
        "def make(limit):\n    def f(x):\n        return x > limit\n    return f\nf = make(4)",
        "captured value `limit` was 3 and is 4",
    ),
    "captured values are swapped": (
        "def make(a, b):\n    def f(x):\n        return x * a - b\n    return f\nf = make(3, 4)",
        "def make(a, b):\n    def f(x):\n        return x * b - a\n    return f\nf = make(3, 4)",
        "captured value",
    ),
    "variables captured inside are swapped": (
        "def f(x, y):\n    def g():\n        return x - y\n    return g()",
        "def f(x, y):\n    def g():\n        return y - x\n    return g()",
        "its code differs",
    ),
    "an argument of partial": (
        "from functools import partial\ndef g(a, x):\n    return a * x\nf = partial(g, 2)",
        "from functools import partial\ndef g(a, x):\n    return a * x\nf = partial(g, 3)",
        "argument 1 of partial was 2 and is 3",
    ),
    "a keyword of partial": (
        "from functools import partial\ndef g(x, a):\n    return a * x\nf = partial(g, a=2)",
        "from functools import partial\ndef g(x, a):\n    return a * x\nf = partial(g, a=3)",
        "argument `a` of partial was 2 and is 3",
    ),
    "the function of partial": (
        "from functools import partial\ndef g(a, x):\n    return a * x\nf = partial(g, 2)",
        "from functools import partial\ndef g(a, x):\n    return a + x\nf = partial(g, 2)",
        "function pipeline.g: its code differs",
    ),
    "an attribute of a callable object": (
        "class C:\n    def __init__(self, k):\n        self.k = k\n    def __call__(self, x):\n        return x * self.k\nf = C(2)",
        "class C:\n    def __init__(self, k):\n        self.k = k\n    def __call__(self, x):\n        return x * self.k\nf = C(3)",
        "attribute `k` was 2 and is 3",
    ),
    "an attribute of a bound method's object": (
        "class C:\n    def __init__(self, k):\n        self.k = k\n    def g(self, x):\n        return x * self.k\nf = C(2).g",
        "class C:\n    def __init__(self, k):\n        self.k = k\n    def g(self, x):\n        return x * self.k\nf = C(3).g",
        "attribute `k` was 2 and is 3",
    ),
    "a method of a base class": (
        "class B:\n    def g(self, x):\n        return x + 1\nclass C(B):\n    def __call__(self, x):\n        return self.g(x)\nf = C()",
        "class B:\n    def g(self, x):\n        return x + 2\nclass C(B):\n    def __call__(self, x):\n        return self.g(x)\nf = C()",
        "the constant 1 became 2",
    ),
    "an attribute of a class": (
        "class C:\n    k = 2\n    def __call__(self, x):\n        return x * self.k\nf = C()",
        "class C:\n    k = 3\n    def __call__(self, x):\n        return x * self.k\nf = C()",
        "attribute `k` was 2 and is 3",
    ),
    "a property": (
        "class C:\n    @property\n    def k(self):\n        return 2\nc = C()\ndef f(x):\n    return x * c.k",
        "class C:\n    @property\n    def k(self):\n        return 3\nc = C()\ndef f(x):\n    return x * c.k",
        "the constant 2 became 3",
    ),
    "a static method": (
        "class C:\n    @staticmethod\n    def g(x):\n        return x * 2\ndef f(x):\n    return C.g(x)",
        "class C:\n    @staticmethod\n    def g(x):\n        return x * 3\ndef f(x):\n    return C.g(x)",
        "the constant 2 became 3",
    ),
    "a field of a dataclass": (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass C:\n    rate: int\nc = C(2)\ndef f(x):\n    return x * c.rate",
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass C:\n    rate: int\nc = C(3)\ndef f(x):\n    return x * c.rate",
        "attribute `rate` was 2 and is 3",
    ),
    "a private attribute of a dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    _k = 2\n    def g(self, x):\n        return x * self._k\ndef f(x):\n    return C().g(x)",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    _k = 3\n    def g(self, x):\n        return x * self._k\ndef f(x):\n    return C().g(x)",
        "attribute `_k` was 2 and is 3",
    ),
    "whether a dataclass compares its fields": (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    k: int\ndef f(x):\n    return C(x) == C(1)",
        "from dataclasses import dataclass\n@dataclass(eq=False)\nclass C:\n    k: int\ndef f(x):\n    return C(x) == C(1)",
        "",
    ),
    "a method that a dataclass has for comparing": (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    k: int\n    def __eq__(self, other):\n        return True\ndef f(x):\n    return C(x) == C(1)",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    k: int\n    def __eq__(self, other):\n        return False\ndef f(x):\n    return C(x) == C(1)",
        "the constant True became False",
    ),
    "a field's default": (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    rate: int = 2\ndef f(x):\n    return x * C().rate",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    rate: int = 3\ndef f(x):\n    return x * C().rate",
        "2 and is 3",
    ),
    "an enum's value": (
        "from enum import Enum\nclass E(Enum):\n    A = 1\n    B = 2\ndef f(x):\n    return E.A.value",
        "from enum import Enum\nclass E(Enum):\n    A = 3\n    B = 2\ndef f(x):\n    return E.A.value",
        "the member A was 1 and is 3",
    ),
    "a member of an enum": (
        "from enum import Enum\nclass E(Enum):\n    A = 1\n    B = 2\nM = E.A\ndef f(x):\n    return x == M",
        "from enum import Enum\nclass E(Enum):\n    A = 1\n    B = 2\nM = E.B\ndef f(x):\n    return x == M",
        "global M was",
    ),
    "a pattern": (
        "import re\nP = re.compile('a+')\ndef f(x):\n    return P.match(x)",
        "import re\nP = re.compile('b+')\ndef f(x):\n    return P.match(x)",
        "'a+' and is 'b+'",
    ),
    "a date": (
        "from datetime import date\nD = date(2024, 1, 1)\ndef f(x):\n    return x > D",
        "from datetime import date\nD = date(2024, 1, 2)\ndef f(x):\n    return x > D",
        "global D differs, a value of type datetime.date",
    ),
    "a decimal": (
        "from decimal import Decimal\nD = Decimal('1.5')\ndef f(x):\n    return x * D",
        "from decimal import Decimal\nD = Decimal('1.6')\ndef f(x):\n    return x * D",
        "'1.5' and is '1.6'",
    ),
    "an array": (
        "import numpy\nA = numpy.array([1.0, 2.0])\ndef f(x):\n    return x * A",
        "import numpy\nA = numpy.array([1.0, 3.0])\ndef f(x):\n    return x * A",
        "global A differs, a value of type numpy.ndarray",
    ),
    "a series of pandas": (
        "import pandas\nA = pandas.Series([1, 2])\ndef f(x):\n    return x * A",
        "import pandas\nA = pandas.Series([1, 3])\ndef f(x):\n    return x * A",
        "global A differs, a value of type pandas.",
    ),
    "a function of a library": (
        "import math\ndef f(x):\n    return math.floor(x)",
        "import math\ndef f(x):\n    return math.ceil(x)",
        "math.floor and is math.ceil",
    ),
    "a function of a library imported inside": (
        "def f(x):\n    from math import floor as g\n    return g(x)",
        "def f(x):\n    from math import ceil as g\n    return g(x)",
        "math.floor and is math.ceil",
    ),
    "a wrapping decorator": (
        "import functools\ndef d(k):\n    def w(g):\n        @functools.wraps(g)\n        def i(x):\n            return g(x) * k\n        return i\n    return w\n@d(2)\ndef f(x):\n    return x",
        "import functools\ndef d(k):\n    def w(g):\n        @functools.wraps(g)\n        def i(x):\n            return g(x) * k\n        return i\n    return w\n@d(3)\ndef f(x):\n    return x",
        "captured value `k` was 2 and is 3",
    ),
    "a function below a wrapping decorator": (
        "import functools\n@functools.lru_cache\ndef f(x):\n    return x + 1",
        "import functools\n@functools.lru_cache\ndef f(x):\n    return x + 2",
        "the constant 1 became 2",
    ),
    "keyword parameters change places": (
        "def g(a, b):\n    return a - b\ndef f(x):\n    return g(a=x, b=1)",
        "def g(b, a):\n    return b - a\ndef f(x):\n    return g(a=x, b=1)",
        "function pipeline.g: its code differs",
    ),
    "a function inside": (
        "def f(x):\n    def g(y):\n        return y * 2\n    return g(x)",
        "def f(x):\n    def g(y):\n        return y * 3\n    return g(x)",
        "the constant 2 became 3",
    ),
    "a comprehension": (
        "def f(xs):\n    return [x * 2 for x in xs]",
        "def f(xs):\n    return [x * 3 for x in xs]",
        "the constant 2 became 3",
    ),
    "a comprehension's condition": (
        "def f(xs):\n    return [x for x in xs if x > 0]",
        "def f(xs):\n    return [x for x in xs if x]",
        "its code differs",
    ),
    "what is caught": (
        "def f(x):\n    try:\n        return int(x)\n    except ValueError:\n        return 0",
        "def f(x):\n    try:\n        return int(x)\n    except TypeError:\n        return 0",
        "ValueError and is builtins.TypeError",
    ),
    "what is inside try": (
        "def f(x):\n    try:\n        y = int(x)\n        z = 1 / y\n    except ValueError:\n        return 0\n    return z",
        "def f(x):\n    try:\n        y = int(x)\n    except ValueError:\n        return 0\n    z = 1 / y\n    return z",
        "its code differs",
    ),
    "a return becomes a generator": (
        "def f(xs):\n    return iter(xs)",
        "def f(xs):\n    yield from xs",
        "its code differs",
    ),
    "break for continue": (
        "def f(xs):\n    t = 0\n    for x in xs:\n        if x < 0:\n            break\n        t += x\n    return t",
        "def f(xs):\n    t = 0\n    for x in xs:\n        if x < 0:\n            continue\n        t += x\n    return t",
        "its code differs",
    ),
    "an attribute of a function": (
        "def g(x):\n    return x * g.k\ng.k = 2\nf = g",
        "def g(x):\n    return x * g.k\ng.k = 3\nf = g",
        "attribute `k` was 2 and is 3",
    ),
    "an attribute of a class inside a function": (
        "def f(x):\n    class C:\n        k = 1\n    return C.k",
        "def f(x):\n    class C:\n        k = 2\n    return C.k",
        "the constant 1 became 2",
    ),
    "a changing captured value": (
        "def make(n):\n    def f(x):\n        nonlocal n\n        n += x\n        return n\n    return f\nf = make(1)",
        "def make(n):\n    def f(x):\n        nonlocal n\n        n += x\n        return n\n    return f\nf = make(2)",
        "a captured value was 1 and is 2",
    ),
    "which global is set": (
        "a = b = 0\ndef g(x):\n    global a\n    a = x\ndef f(x):\n    g(x)\n    return a",
        "a = b = 0\ndef g(x):\n    global b\n    b = x\ndef f(x):\n    g(x)\n    return a",
        "its code differs",
    ),
    "a call of the base class": (
        "class B:\n    def g(self, x):\n        return x\nclass C(B):\n    def g(self, x):\n        return super().g(x) + 1\n    def __call__(self, x):\n        return self.g(x)\nf = C()",
        "class B:\n    def g(self, x):\n        return x\nclass C(B):\n    def g(self, x):\n        return super().g(x) + 2\n    def __call__(self, x):\n        return self.g(x)\nf = C()",
        "the constant 1 became 2",
    ),
    "a docstring that the code reads": (
        "def g():\n    'a'\ndef f(x):\n    return g.__doc__",
        "def g():\n    'b'\ndef f(x):\n    return g.__doc__",
        "attribute `__doc__` was 'a' and is 'b'",
    ),
    "a function for one type": (
        "from functools import singledispatch as s\n@s\ndef f(x):\n    return x\n@f.register\ndef _(x: int):\n    return x + 1",
        "from functools import singledispatch as s\n@s\ndef f(x):\n    return x\n@f.register\ndef _(x: int):\n    return x + 2",
        "the constant 1 became 2",
    ),
    "a slot of an object": (
        "class C:\n    __slots__ = ('k',)\n    def __init__(self, k):\n        self.k = k\nc = C(2)\ndef f(x):\n    return x * c.k",
        "class C:\n    __slots__ = ('k',)\n    def __init__(self, k):\n        self.k = k\nc = C(3)\ndef f(x):\n    return x * c.k",
        "attribute `k` was 2 and is 3",
    ),
    "a named tuple": (
        "from typing import NamedTuple\nclass C(NamedTuple):\n    k: int\nc = C(2)\ndef f(x):\n    return x * c.k",
        "from typing import NamedTuple\nclass C(NamedTuple):\n    k: int\nc = C(3)\ndef f(x):\n    return x * c.k",
        "its content was 2 and is 3",
    ),
    "a default dictionary's entry": (
        "from collections import defaultdict\nD = defaultdict(int, a=1)\ndef f(x):\n    return D[x]",
        "from collections import defaultdict\nD = defaultdict(int, a=2)\ndef f(x):\n    return D[x]",
        "global D differs, a value of type collections.defaultdict",
    ),
    "an inherited dictionary's entry": (
        "class C(dict):\n    pass\nD = C(a=1)\ndef f(x):\n    return D[x]",
        "class C(dict):\n    pass\nD = C(a=2)\ndef f(x):\n    return D[x]",
        "its content was {'a': 1} and is {'a': 2}",
    ),
    "a lambda of a lambda": (
        "f = (lambda k: lambda x: x * k)(2)",
        "f = (lambda k: lambda x: x * k)(3)",
        "captured value `k` was 2 and is 3",
    ),
    "a method that is called by name": (
        "class C:\n    def do_a(self, x):\n        return x\nc = C()\ndef f(x):\n    return getattr(c, 'do_' + x)(x)",
        "class C:\n    def do_a(self, x):\n        return x + 1\nc = C()\ndef f(x):\n    return getattr(c, 'do_' + x)(x)",
        "its code differs",
    ),
    "await for a call": (
        "async def f(x):\n    return x()",
        "async def f(x):\n    return await x()",
        "its code differs",
    ),
    "what with enters": (
        "def f(x, y):\n    with x:\n        return y",
        "def f(x, y):\n    with y:\n        return y",
        "its code differs",
    ),
    "a local variable instead of another": (
        "def f(x):\n    a = x + 1\n    b = x + 2\n    return a",
        "def f(x):\n    a = x + 1\n    b = x + 2\n    return b",
        "its code differs",
    ),
    "a module that is imported by its name": (
        "import importlib\ndef f(x):\n    return importlib.import_module('config').RATE * x\n--- config\nRATE = 1",
        "import importlib\ndef f(x):\n    return importlib.import_module('config').RATE * x\n--- config\nRATE = 2",
        "RATE was 1 and is 2",
    ),
    "a module that is imported by its name inside": (
        "from importlib import import_module\ndef f(x):\n    m = import_module('config')\n    return m.RATE * x\n--- config\nRATE = 1",
        "from importlib import import_module\ndef f(x):\n    m = import_module('config')\n    return m.RATE * x\n--- config\nRATE = 2",
        "RATE` was 1 and is 2",
    ),
    "an attribute that is named by a text": (
        "import config\ndef f(x):\n    return getattr(config, 'RATE') * x\n--- config\nRATE = 1",
        "import config\ndef f(x):\n    return getattr(config, 'RATE') * x\n--- config\nRATE = 2",
        "RATE` was 1 and is 2",
    ),
    "a module out of all that are loaded": (
        "import sys, config\ndef f(x):\n    return sys.modules['config'].RATE * x\n--- config\nRATE = 1",
        "import sys, config\ndef f(x):\n    return sys.modules['config'].RATE * x\n--- config\nRATE = 2",
        "RATE was 1 and is 2",
    ),
    "type hints that the code reads": (
        "class C:\n    a: int\ndef f(x):\n    return list(C.__annotations__)",
        "class C:\n    b: int\ndef f(x):\n    return list(C.__annotations__)",
        "attribute `__annotations__` was {'a': 'int'} and is {'b': 'int'}",
    ),
    "type hints of a function that a library reads": (
        "import typing\ndef g(a: int): ...\ndef f(x):\n    return list(typing.get_type_hints(g).values())[0](x)",
        "import typing\ndef g(a: str): ...\ndef f(x):\n    return list(typing.get_type_hints(g).values())[0](x)",
        "attribute `__annotations__` was",
    ),
    "type hints of a class that a library reads": (
        "import inspect\nclass C:\n    def __init__(self, a: int): ...\ndef f(x):\n    return str(inspect.signature(C.__init__))",
        "import inspect\nclass C:\n    def __init__(self, a: str): ...\ndef f(x):\n    return str(inspect.signature(C.__init__))",
        "attribute `__annotations__` was",
    ),
    "what a module computes for a name": (
        "import helpers\ndef f(x):\n    return x * helpers.RATE\n--- helpers\ndef __getattr__(name):\n    return 2",
        "import helpers\ndef f(x):\n    return x * helpers.RATE\n--- helpers\ndef __getattr__(name):\n    return 3",
        "the constant 2 became 3",
    ),
    "what a module computes for a name that is imported": (
        "def f(x):\n    from helpers import RATE\n    return x * RATE\n--- helpers\ndef __getattr__(name):\n    return 2",
        "def f(x):\n    from helpers import RATE\n    return x * RATE\n--- helpers\ndef __getattr__(name):\n    return 3",
        "the constant 2 became 3",
    ),
    "the order of a mapping that is gone through": (
        "RULES = {'a': 1, 'b': 2}\ndef f(x):\n    return [k for k in RULES if k in x]",
        "RULES = {'b': 2, 'a': 1}\ndef f(x):\n    return [k for k in RULES if k in x]",
        "global RULES was {'a': 1, 'b': 2} and is {'b': 2, 'a': 1}",
    ),
    "the order of decorators": (
        "def a(g):\n    def i(x):\n        return g(x) + 1\n    return i\ndef b(g):\n    def i(x):\n        return g(x) * 2\n    return i\n@a\n@b\ndef f(x):\n    return x",
        "def a(g):\n    def i(x):\n        return g(x) + 1\n    return i\ndef b(g):\n    def i(x):\n        return g(x) * 2\n    return i\n@b\n@a\ndef f(x):\n    return x",
        "its code differs",
    ),
    "a format": (
        "def f(x):\n    return f'{x:.2f}'",
        "def f(x):\n    return f'{x:.3f}'",
        "the constant '.2f' became '.3f'",
    ),
    "a changed list that was captured": (
        "def make():\n    rules = []\n    def f(x):\n        return x in rules\n    rules.append(1)\n    return f\nf = make()",
        "def make():\n    rules = []\n    def f(x):\n        return x in rules\n    rules.append(2)\n    return f\nf = make()",
        "[1] and is [2]",
    ),
    "a registered function": (
        "R = {}\ndef reg(name):\n    def d(g):\n        R[name] = g\n        return g\n    return d\n@reg('a')\ndef a(x):\n    return x + 1\ndef f(x):\n    return R['a'](x)",
        "R = {}\ndef reg(name):\n    def d(g):\n        R[name] = g\n        return g\n    return d\n@reg('a')\ndef a(x):\n    return x + 2\ndef f(x):\n    return R['a'](x)",
        "the constant 1 became 2",
    ),
}
