"""Python objects as data: functions by what they do, texts by hash, what cannot be compared by the reason."""

from __future__ import annotations

import ast
import builtins
import copy
import enum
import functools
import hashlib
import importlib
import json
import logging
import os
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from headrace.planner.code.objects import NOT_SET, Objects, path_of, reduce
from headrace.planner.code.scope import DYNAMIC, Environment, Lookup, Named, OpenedFile, Unknown, Uses
from headrace.redaction import MASK, SECRET_NAME, redacted
from headrace.user_source import Definition, captured_variables

Data: TypeAlias = dict[str, Any]
MOST_NODES = 5_000
MOST_ELEMENTS = 100_000
DEEPEST = 60
_FOLDED = 200  # A container of more elements is kept as a hash.
_SHOWN = 80
_UNFORESEEABLE = (eval, exec, compile, globals, __import__, importlib.import_module)
_NO_STATE = {
    "pyspark.sql.session.SparkSession",
    "pyspark.core.context.SparkContext",
    "pyspark.accumulators.Accumulator",
}
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
# Of larger files, size and time of modification stand for the content.
WHOLE_BYTES = 8 << 20


class ReachedValues:
    """The objects that a function reaches: `nodes` holds what may hold itself, other values stand where they are."""

    def __init__(
        self,
        owned: Callable[[types.ModuleType], bool],
        salt: str,
        keywords: Collection[str],
        *,
        files: bool = True,
    ) -> None:
        self._owns = owned
        self._files = files
        self._salt = salt
        self.nodes: list[Data] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        self._waiting: list[tuple[Any, Data, str | None]] = []
        self._uses = Uses(keywords)
        self._objects = Objects(self.value, self._uses, self._owns_name, self.is_owned, self._show_lines)
        self._directory: str | None = None
        # Values whose names say that they are secrets are not shown.
        self._secrets = {value for name, value in os.environ.items() if SECRET_NAME.search(name) and len(value) > 2}

    def root(self, thing: Any) -> Data:
        """Return the data of `thing`, with all that it reaches in `nodes`."""
        cls = thing if isinstance(thing, type) else type(thing)
        if not callable(thing) or isinstance(thing, type):  # Spark calls its methods by name.
            self._uses.add(*(name for base in cls.__mro__ for name in vars(base) if not name.startswith("_")))
        root = self.value(thing)
        while self._waiting or self._take_attributes():
            while self._waiting:
                entry, node, self._directory = self._waiting.pop(0)
                try:
                    self._objects.fill(entry, node)
                except Exception as error:  # As above; what is half known is not known.
                    node.clear()
                    node.update(kind="object", name=type(entry).__name__, **_unreadable(type(entry), error))
        self._uses.finish(self.nodes)
        for node in self.nodes:
            if "function" in (code := node.get("code", {})):
                # The tree of a function inside may lead to no node: those are among the values.
                code["names"] = code["function"]["names"]
                code["tree"] = hashlib.sha256(_text_of(code.pop("function")).encode()).hexdigest()[:16]
        return root

    def _take_attributes(self) -> bool:
        taken = self._uses.take()
        for node, name, value in taken:
            node.setdefault("attributes", []).append([name, self.value(value)])
            node["attributes"].sort(key=lambda pair: str(pair[0]))
        return bool(taken)

    def is_owned(self, module: types.ModuleType) -> bool:
        """Whether a module belongs to the project; a copy that was pickled does if the module of its name does."""
        return self._owns(module) or self._owns(sys.modules.get(module.__name__, module))

    def _owns_name(self, name: Any) -> bool:
        module = sys.modules.get(name) if isinstance(name, str) else None
        return module is None or name == "__main__" or self._owns(module)

    def value(self, thing: Any, depth: int = 0) -> Data:
        kind = type(thing)
        if thing is None or thing is Ellipsis or thing is NotImplemented:
            return {"is": repr(thing)}
        if kind is bool or kind is int:
            return {kind.__name__: thing if abs(thing) < 2**53 else str(thing)}
        if kind is float or kind is complex:
            return {kind.__name__: repr(thing)}
        if kind is str:
            return self._text(thing)
        if kind is bytes or kind is bytearray:
            return {kind.__name__: self._hash(bytes(thing)), "length": len(thing)}
        if kind is Named:
            return {"library": thing.path}
        if kind is Unknown:
            return {"not comparable": thing.why}
        if kind is Environment:
            return self._environment(thing.name)
        if kind is OpenedFile:
            return self._file(thing.path)
        if thing is sys.modules:
            return {"not comparable": "it looks modules up by names that it computes"}
        if depth > DEEPEST:
            return {"not comparable": f"it is nested more than {DEEPEST} deep"}
        if kind is Lookup:
            data = self._container(thing.entries, depth + 1)
            ordered = {key: sorted(part, key=_text_of) for key, part in data.items() if isinstance(part, list)}
            return {**data, **ordered}
        if kind in (list, tuple, set, frozenset, dict, types.MappingProxyType):
            return self._container(thing, depth + 1)
        try:
            return self._object(thing, depth + 1)
        except Exception as error:  # A proxy or a class of others may do anything when it is looked at.
            return _unreadable(kind, error)

    def _hash(self, content: bytes) -> str:
        return hashlib.sha256(self._salt.encode() + b"\0" + content).hexdigest()[:16]

    def _text(self, text: str) -> Data:
        if self._directory is not None:  # A project may be moved.
            text = text.replace(self._directory, "<directory>")
        data: Data = {"text": self._hash(text.encode(errors="surrogatepass"))}
        if text not in self._secrets and redacted(text) == text:
            data["shown"] = text[:_SHOWN] + ("..." if len(text) > _SHOWN else "")
        self._uses.add(text)
        return data

    def _environment(self, name: str | None) -> Data:
        if name is None:
            return {"not comparable": "it reads environment variables by names that it computes"}
        value = os.environ.get(name)
        hashed = None if value is None else self._hash(value.encode(errors="surrogateescape"))
        return {"environment": name, "value": hashed}

    def _file(self, path: str | None) -> Data:
        if not self._files:
            return {"file": None}
        if path is None:
            return {"not comparable": "it opens a file by a name that it computes"}
        shown = path if self._directory is None else path.replace(self._directory, "<directory>")
        return {"file": redacted(shown), "content": digest_of([path])}

    def _show_lines(self, written: Definition) -> list[str]:
        """Return the lines of a function, without documentation and secrets."""
        lines = []
        for line in text_of(written.node).splitlines():
            for secret in self._secrets:
                line = line.replace(secret, MASK)
            lines.append(redacted(line))
        return lines

    def _container(self, thing: Any, depth: int) -> Data:
        if len(thing) > MOST_ELEMENTS:
            return {"not comparable": f"it has more than {MOST_ELEMENTS:,} elements"}
        elements: list[Any]
        if isinstance(thing, (dict, types.MappingProxyType)):
            kind = "dict"
            elements = [[self.value(key, depth), self.value(element, depth)] for key, element in thing.items()]
        elif isinstance(thing, (set, frozenset)):
            kind = type(thing).__name__
            several = [self.value(element, depth) for element in sorted(thing, key=_sort_key)]
            elements = sorted(several, key=_text_of)
        else:
            kind, elements = type(thing).__name__, [self.value(element, depth) for element in thing]
        if len(elements) > _FOLDED:
            text = json.dumps(without_names(elements), sort_keys=True)
            if '{"ref"' not in text and '"not comparable"' not in text:
                return {"folded": self._hash(text.encode()), "of": kind, "length": len(elements)}
        return {kind: elements}

    def _object(self, thing: Any, depth: int) -> Data:
        if isinstance(thing, types.ModuleType):
            return self._node(thing) if self.is_owned(thing) else {"library": thing.__name__}
        if isinstance(thing, (types.BuiltinFunctionType, types.MethodWrapperType)):
            return self._builtin(thing, depth)
        if isinstance(thing, _METHODS):
            return {"library": f"{thing.__objclass__.__module__}.{thing.__objclass__.__qualname__}.{thing.__name__}"}
        if isinstance(thing, (types.MemberDescriptorType, types.GetSetDescriptorType)):
            return {"slot": thing.__name__}
        if isinstance(thing, types.MethodType):
            return {"method": self.value(thing.__func__, depth), "of": self.value(thing.__self__, depth)}
        if isinstance(thing, functools.partial):
            keywords = [[name, self.value(part, depth)] for name, part in sorted(thing.keywords.items())]
            self._uses.keywords.update(thing.keywords)
            arguments = [self.value(part, depth) for part in thing.args]
            return {"partial": self.value(thing.func, depth), "arguments": arguments, "keywords": keywords}
        if isinstance(thing, property):
            return {"property": [self.value(part, depth) for part in (thing.fget, thing.fset, thing.fdel)]}
        if isinstance(thing, (staticmethod, classmethod)):
            return {type(thing).__name__: self.value(thing.__func__, depth)}
        if isinstance(thing, functools.cached_property):
            return {"cached_property": self.value(thing.func, depth)}
        if isinstance(thing, functools._lru_cache_wrapper):
            return {"cached": self.value(thing.__wrapped__, depth)}
        if isinstance(thing, enum.Enum) and isinstance(thing.name, str):
            return {"member": self.value(type(thing), depth), "called": thing.name}
        if isinstance(thing, type) and not self._owns_name(thing.__module__):
            return {"library": path_of(thing)}
        if isinstance(thing, types.FunctionType) and not self._owns_name(thing.__globals__.get("__name__")):
            return self._of_library(thing, depth)
        if isinstance(thing, logging.Logger) or path_of(type(thing)) in _NO_STATE:
            return {"library": path_of(type(thing))}
        is_node = id(thing) in self._numbers or isinstance(thing, (types.FunctionType, type))
        if not is_node and reduce(thing) is None:
            return {"not comparable": f"a value of type {path_of(type(thing))} cannot be looked at"}
        return self._node(thing)

    def _builtin(self, thing: Any, depth: int) -> Data:
        owner = thing.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            if thing in _UNFORESEEABLE:
                return {"not comparable": f"it calls {thing.__name__}, whose code is not known before"}
            self._uses.dynamic |= thing in DYNAMIC
            return {"library": f"{thing.__module__ or builtins.__name__}.{thing.__qualname__}"}
        if isinstance(owner, type):
            return {"method": thing.__name__, "of": self.value(owner, depth)}
        module = sys.modules.get(type(owner).__module__)
        if module is not None and getattr(module, thing.__name__, None) == thing:  # such as random.random
            return {"library": f"{module.__name__}.{thing.__name__}"}
        return {"method": thing.__name__, "of": self.value(owner, depth)}

    def _of_library(self, function: types.FunctionType, depth: int) -> Data:
        """Return a library's function by its name, and by what it captured if it was made at run time."""
        if function is importlib.import_module:
            return {"not comparable": "it imports modules by names that it computes"}
        module, code = function.__globals__["__name__"], function.__code__
        if f"{module}.{function.__qualname__}" in _READ_HINTS:
            self._uses.add("__annotations__")
        if function.__closure__ is None and "<locals>" not in function.__qualname__:
            return {"library": f"{module}.{function.__qualname__}"}
        registry = getattr(function, "registry", None)
        if isinstance(registry, types.MappingProxyType):  # functools.singledispatch
            return {"library": f"{module}.{code.co_name}", "captured": [["registry", self.value(registry, depth)]]}
        captured = [[name, self.value(value, depth)] for name, value in sorted(captured_variables(function, NOT_SET))]
        name = getattr(code, "co_qualname", code.co_name)
        return {"library": f"{module}.{name}", "captured": captured}

    def _node(self, thing: Any) -> Data:
        number = self._numbers.get(id(thing))
        if number is None:
            if len(self.nodes) >= MOST_NODES:
                return {"not comparable": f"it reaches more than {MOST_NODES:,} objects"}
            number = self._numbers[id(thing)] = len(self.nodes)
            self.nodes.append({})
            self._alive.append(thing)
            self._waiting.append((thing, self.nodes[-1], _directory(thing) or self._directory))
        return {"ref": number}


def text_of(node: ast.AST) -> str:
    """Return the text of a function without documentation; of a long one the beginning."""
    node = copy.deepcopy(node)
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        if isinstance(body, list):
            kept = [part for part in body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
            inner.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner.decorator_list = [] if inner is node else inner.decorator_list
    return ast.unparse(node)[:_LONGEST]


# Functions of libraries whose answer depends on type hints.
_READ_HINTS = frozenset(
    (
        *("typing.get_type_hints", "inspect.signature", "inspect.get_annotations", "inspect.getfullargspec"),
        *("annotationlib.get_annotations", "typing_extensions.get_type_hints"),
    )
)
# What is there for people alone, by its key in the data.
_FOR_PEOPLE = {"shown", "name", "names", "source"}
_LONGEST = 20_000


def without_names(data: Any) -> Any:
    """Return `data` without what is there for people to read."""
    if isinstance(data, dict):
        return {key: without_names(part) for key, part in data.items() if key not in _FOR_PEOPLE}
    return [without_names(part) for part in data] if isinstance(data, list) else data


def _text_of(data: Any) -> str:
    return json.dumps(without_names(data), sort_keys=True)


def _unreadable(kind: type, error: Exception) -> Data:
    return {"not comparable": f"a value of type {kind.__name__} cannot be looked at: {type(error).__name__}"}


def _sort_key(element: Any) -> tuple[str, str, str]:
    cls = type(element)
    plain = repr(element) if cls.__module__ == "builtins" and cls in (str, int, float, bool, bytes) else ""
    return (cls.__qualname__, str(getattr(element, "__qualname__", "")), plain)


def _directory(thing: Any) -> str | None:
    """Return the directory of the file that a function or a class comes from, unless it is installed."""
    if isinstance(thing, types.FunctionType):
        file = thing.__globals__.get("__file__")
    else:
        cls = thing if isinstance(thing, type) else type(thing)
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    path = PurePath(file) if isinstance(file, str) else PurePath()
    installed = {"site-packages", "lib", "lib64"} & set(path.parts) or len(path.parts) < 3
    return None if installed else str(path.parent)


def digest_of(paths: Iterable[str]) -> str:
    """Return a digest of all files below `paths`, hidden ones left out; `unknown` for what is not on this machine."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        if not os.path.exists(path):
            return "unknown"
        for name, file in sorted(_files_below(path)):
            digest.update(f"{name}\0".encode())
            facts = os.stat(file)
            if facts.st_size <= WHOLE_BYTES:
                digest.update(hashlib.sha256(Path(file).read_bytes()).digest())
            else:
                digest.update(f"{facts.st_size} {facts.st_mtime_ns}".encode())
    return digest.hexdigest()[:12]


def _files_below(path: str) -> Iterator[tuple[str, str]]:
    if os.path.isfile(path):
        yield "", path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = [child for child in folders if not child.startswith(("_", "."))]
        for name in names:
            if not name.startswith(("_", ".")):
                file = os.path.join(folder, name)
                yield os.path.relpath(file, path), file
