"""Python objects as data: functions by what they do, texts by hash, what cannot be compared by the reason."""

from __future__ import annotations

import builtins
import copyreg
import enum
import functools
import hashlib
import importlib
import json
import logging
import os
import re
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import PurePath
from typing import Any, TypeAlias

from headrace.plan.bytecode import VARIABLE_OPS, Step
from headrace.plan.listing import Listing
from headrace.plan.python_names import VALUE, Environment, Named, Scope, Unknown, captured_values
from headrace.redaction import SECRET_NAME, redacted

Data: TypeAlias = dict[str, Any]

MOST_NODES = 5_000
MOST_ELEMENTS = 100_000
DEEPEST = 60
_FOLDED = 200  # A container of more elements is kept as a hash.
_SHOWN = 80
_NAME = re.compile(r"[A-Za-z_]\w*")
# Attributes of a class that say nothing about what it does, or that `__slots__` and the like have made.
_IGNORED = {
    *(
        "__doc__",
        "__module__",
        "__dict__",
        "__weakref__",
        "__firstlineno__",
        "__static_attributes__",
        "__annotations__",
    ),
    *("__orig_bases__", "__parameters__", "__abstractmethods__", "_abc_impl", "__annotate__", "__dataclass_params__"),
    *("__annotations_cache__", "__annotate_func__"),
}
_ENUM_PARTS = {
    *("_member_names_", "_member_map_", "_value2member_map_", "_member_type_", "_new_member_", "_use_args_", "__new__"),
    *("_generate_next_value_", "_unhashable_values_", "_hashable_values_", "_value_repr_"),
}
# With these the names of attributes are no longer known before.
_DYNAMIC = (getattr, vars, dir, setattr, delattr, hasattr)
_UNFORESEEABLE = (eval, exec, compile, globals, __import__, importlib.import_module)
# What PySpark keeps beside a function that was made from it.
_DERIVED = {"_judf_placeholder", "_judtf_placeholder", "_returnType_placeholder", "_name", "__wrapped__"}
_NO_STATE = {
    "pyspark.sql.session.SparkSession",
    "pyspark.core.context.SparkContext",
    "pyspark.accumulators.Accumulator",
}
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


class Values:
    """The objects that a function reaches: `nodes` holds what may hold itself, other values stand where they are."""

    def __init__(self, owned: Callable[[types.ModuleType], bool], salt: str, keywords: Collection[str]) -> None:
        self._owns = owned
        self._salt = salt
        self.nodes: list[Data] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        self._waiting: list[tuple[Any, Data, str | None]] = []
        self._used: set[str] = set()
        self._keywords = set(keywords)
        self._any_keyword = self._dynamic = False
        self._members: list[tuple[Data, str, str, Any]] = []
        self._globals_set: set[str] = set()
        self._directory: str | None = None
        # Values whose names say that they are secrets are not shown.
        self._secrets = {value for name, value in os.environ.items() if SECRET_NAME.search(name) and len(value) > 2}

    def root(self, thing: Any) -> Data:
        """The data of `thing`, with all that it reaches in `nodes`."""
        cls = thing if isinstance(thing, type) else type(thing)
        if not isinstance(thing, types.FunctionType):  # Spark calls its methods by name.
            self._used |= {name for each in cls.__mro__ for name in vars(each) if not name.startswith("_")}
        found = self.value(thing)
        while self._waiting or self._take_members():
            while self._waiting:
                each, node, self._directory = self._waiting.pop(0)
                self._fill(each, node)
        self._name_parameters()
        return found

    def owned(self, module: types.ModuleType) -> bool:
        """Whether a module belongs to the project; a copy that was pickled does if the module of its name does."""
        return self._owns(module) or self._owns(sys.modules.get(module.__name__, module))

    def _owns_name(self, name: Any) -> bool:
        module = sys.modules.get(name) if isinstance(name, str) else None
        return module is None or name == "__main__" or self._owns(module)

    def value(self, thing: Any, depth: int = 0) -> Data:
        """The data of one value."""
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
            return {kind.__name__: self._hashed(bytes(thing)), "length": len(thing)}
        if kind is Named:
            return {"library": thing.path}
        if kind is Unknown:
            return {"not comparable": thing.why}
        if kind is Environment:
            return self._environment(thing.name)
        if depth > DEEPEST:
            return {"not comparable": f"it is nested more than {DEEPEST} deep"}
        if kind in (list, tuple, set, frozenset, dict, types.MappingProxyType):
            return self._container(thing, depth + 1)
        return self._object(thing, depth + 1)

    def _hashed(self, content: bytes) -> str:
        return hashlib.sha256(self._salt.encode() + b"\0" + content).hexdigest()[:16]

    def _text(self, text: str) -> Data:
        if self._directory is not None:  # A project may be moved.
            text = text.replace(self._directory, "<directory>")
        data: Data = {"text": self._hashed(text.encode(errors="surrogatepass"))}
        shown = text[:_SHOWN]
        if text not in self._secrets and redacted(text) == text:
            data["shown"] = shown + ("..." if len(text) > _SHOWN else "")
        if len(text) < 100 and _NAME.fullmatch(text):
            self._used.add(text)
        return data

    def _environment(self, name: str | None) -> Data:
        if name is None:
            return {"not comparable": "it reads environment variables by names that it computes"}
        value = os.environ.get(name)
        found = None if value is None else self._hashed(value.encode(errors="surrogateescape"))
        return {"environment": name, "value": found}

    def _container(self, thing: Any, depth: int) -> Data:
        if len(thing) > MOST_ELEMENTS:
            return {"not comparable": f"it has more than {MOST_ELEMENTS:,} elements"}
        found: list[Any]
        if isinstance(thing, (dict, types.MappingProxyType)):
            kind, found = "dict", [[self.value(key, depth), self.value(each, depth)] for key, each in thing.items()]
        elif isinstance(thing, (set, frozenset)):
            kind = type(thing).__name__
            several = [self.value(each, depth) for each in sorted(thing, key=_order)]
            found = sorted(several, key=lambda each: json.dumps(essence(each), sort_keys=True))
        else:
            kind, found = type(thing).__name__, [self.value(each, depth) for each in thing]
        if len(found) > _FOLDED:
            text = json.dumps(essence(found), sort_keys=True)
            if '{"ref"' not in text and '"not comparable"' not in text:
                return {"folded": self._hashed(text.encode()), "of": kind, "length": len(found)}
        return {kind: found}

    def _object(self, thing: Any, depth: int) -> Data:
        if isinstance(thing, types.ModuleType):
            return self._node(thing) if self.owned(thing) else {"library": thing.__name__}
        if isinstance(thing, (types.BuiltinFunctionType, types.MethodWrapperType)):
            return self._builtin(thing, depth)
        if isinstance(thing, _METHODS):
            return {"library": f"{thing.__objclass__.__module__}.{thing.__objclass__.__qualname__}.{thing.__name__}"}
        if isinstance(thing, (types.MemberDescriptorType, types.GetSetDescriptorType)):
            return {"slot": thing.__name__}
        if isinstance(thing, types.MethodType):
            return {"method": self.value(thing.__func__, depth), "of": self.value(thing.__self__, depth)}
        if isinstance(thing, functools.partial):
            keywords = [[name, self.value(each, depth)] for name, each in sorted(thing.keywords.items())]
            self._keywords |= set(thing.keywords)
            arguments = [self.value(each, depth) for each in thing.args]
            return {"partial": self.value(thing.func, depth), "arguments": arguments, "keywords": keywords}
        if isinstance(thing, property):
            return {"property": [self.value(each, depth) for each in (thing.fget, thing.fset, thing.fdel)]}
        if isinstance(thing, (staticmethod, classmethod)):
            return {type(thing).__name__: self.value(thing.__func__, depth)}
        if isinstance(thing, functools.cached_property):
            return {"cached_property": self.value(thing.func, depth)}
        if isinstance(thing, functools._lru_cache_wrapper):
            return {"cached": self.value(thing.__wrapped__, depth)}
        if isinstance(thing, enum.Enum) and isinstance(thing.name, str):
            return {"member": self.value(type(thing), depth), "called": thing.name}
        if isinstance(thing, type) and not self._owns_name(thing.__module__):
            return {"library": f"{thing.__module__}.{thing.__qualname__}"}
        if isinstance(thing, types.FunctionType) and not self._owns_name(thing.__globals__.get("__name__")):
            return self._of_library(thing, depth)
        if isinstance(thing, logging.Logger) or _path(type(thing)) in _NO_STATE:
            return {"library": _path(type(thing))}
        if not isinstance(thing, (types.FunctionType, type)) and _reduced(thing) is None:
            return {"not comparable": f"a value of type {_path(type(thing))} cannot be looked at"}
        return self._node(thing)

    def _builtin(self, thing: Any, depth: int) -> Data:
        owner = thing.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            if thing in _UNFORESEEABLE:
                return {"not comparable": f"it calls {thing.__name__}, whose code is not known before"}
            self._dynamic |= thing in _DYNAMIC
            return {"library": f"{thing.__module__ or builtins.__name__}.{thing.__qualname__}"}
        if isinstance(owner, type):
            return {"method": thing.__name__, "of": self.value(owner, depth)}
        module = sys.modules.get(type(owner).__module__)
        if module is not None and getattr(module, thing.__name__, None) == thing:  # such as random.random
            return {"library": f"{module.__name__}.{thing.__name__}"}
        return {"method": thing.__name__, "of": self.value(owner, depth)}

    def _of_library(self, function: types.FunctionType, depth: int) -> Data:
        """A library's function by its name, and by what it captured if it was made at run time."""
        if function is importlib.import_module:
            return {"not comparable": "it imports modules by names that it computes"}
        module, code = function.__globals__["__name__"], function.__code__
        if function.__closure__ is None and "<locals>" not in function.__qualname__:
            return {"library": f"{module}.{function.__qualname__}"}
        registry = getattr(function, "registry", None)
        if isinstance(registry, types.MappingProxyType):  # functools.singledispatch
            return {"library": f"{module}.{code.co_name}", "captured": [["registry", self.value(registry, depth)]]}
        captured = [[name, self.value(each, depth)] for name, each in sorted(_all_captured(function))]
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

    def _fill(self, thing: Any, node: Data) -> None:
        if isinstance(thing, types.FunctionType):
            self._function(thing, node)
        elif isinstance(thing, type):
            self._class(thing, node)
        elif isinstance(thing, types.ModuleType):
            node.update(kind="module", name=thing.__name__, attributes=[])
            for name, each in sorted(vars(thing).items()):
                if not (name.startswith("__") and name.endswith("__")):
                    node["attributes"].append([name, self.value(each)])
        else:
            self._instance(thing, node)

    def _class(self, cls: type, node: Data) -> None:
        node.update(kind="class", name=f"{cls.__module__}.{cls.__qualname__}")
        node["bases"] = [self.value(base) for base in cls.__bases__ if base is not object]
        if type(cls) is not type:
            node["metaclass"] = self.value(type(cls))
        node["attributes"] = []
        members = dict(vars(cls))
        if isinstance(cls, enum.EnumMeta):
            found: Mapping[str, Any] = cls.__members__
            node["members"] = [[name, self.value(each.value)] for name, each in found.items()]
            members = {name: each for name, each in members.items() if name not in {*found, *_ENUM_PARTS}}
        fields = members.pop("__dataclass_fields__", None)
        if isinstance(fields, dict):
            node["fields"] = [[name, self.value(dict(each.metadata))] for name, each in fields.items()]
        hints = members.get("__annotations__")
        if hints and not self._is_plain(type(cls)):  # A library's metaclass may make something of them.
            node["hints"] = [[name, self.value(hint)] for name, hint in hints.items()]
        inherited = {name for base in cls.__mro__[1:] if not self._owns_name(base.__module__) for name in vars(base)}
        for name, each in sorted(members.items()):
            special = name.startswith("__") and name.endswith("__")
            if name in _IGNORED or (name in ("__qualname__", "__hash__") and not callable(each)):
                continue
            if special or name in inherited:
                node["attributes"].append([name, self.value(each)])
            else:
                self._members.append((node, "attributes", name, each))
        self._members.append((node, "attributes", "__name__", cls.__name__))

    def _is_plain(self, metaclass: type) -> bool:
        return metaclass.__module__ in ("builtins", "abc", "enum", "typing")

    def _take_members(self) -> bool:
        """Enter those attributes whose names the code uses by now; tell whether there were any."""
        taken = [each for each in self._members if self._dynamic or each[2] in self._used]
        self._members = [each for each in self._members if not (self._dynamic or each[2] in self._used)]
        for node, part, name, each in taken:
            node[part].append([name, self.value(each)])
            node[part].sort(key=lambda pair: str(pair[0]))
        return bool(taken)

    def _instance(self, thing: Any, node: Data) -> None:
        cls = type(thing)
        node.update(kind="object", name=_path(cls), **{"class": self.value(cls)})
        found = _reduced(thing)
        if isinstance(found, str):
            node["arguments"] = [{"library": f"{getattr(thing, '__module__', None) or cls.__module__}.{found}"}]
            return
        if isinstance(thing, PurePath):
            node["arguments"] = [self._text(str(thing))]
            return
        self._alive.append(found)
        make, arguments, state, elements, pairs = (*found, None, None, None)[:5]
        if make not in (copyreg.__newobj__, cls):  # type: ignore[attr-defined]
            node["made by"] = self.value(make)
        node["arguments"] = [self.value(each) for each in arguments if each is not cls]
        for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
            self._state(part, node)
        self._contents(node, elements, pairs)

    def _state(self, state: Any, node: Data) -> None:
        if not isinstance(state, dict):
            if state is not None:
                node.setdefault("state", []).append(self.value(state))
            return
        node.setdefault("attributes", [])
        for name, each in sorted(state.items(), key=lambda pair: str(pair[0])):
            if name in _DERIVED:
                continue
            found = self.value(each)
            if "not comparable" in found:
                self._members.append((node, "attributes", name, each))
            else:
                node["attributes"].append([name, found])

    def _contents(self, node: Data, elements: Iterable[Any] | None, pairs: Iterable[Any] | None) -> None:
        if elements is not None:
            node["elements"] = self.value(list(elements))
        if pairs is not None:
            node["entries"] = self.value(dict(pairs))

    def _function(self, function: types.FunctionType, node: Data) -> None:
        code, module = function.__code__, function.__globals__
        node.update(kind="function", name=f"{module.get('__name__', '')}.{function.__qualname__}")
        known = dict(captured_values(function))
        scope = Scope(module, known, self.owned)
        node["defaults"] = [self.value(each) for each in function.__defaults__ or ()]
        node["keyword defaults"] = [
            [name, self.value(each)] for name, each in sorted((function.__kwdefaults__ or {}).items())
        ]
        node["code"], outer = Listing(self.value, self.uses, code, scope).data()
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        if outer:
            node["captured"] = [self.value(_content(cells[name])) if name in cells else None for name in outer]
        node["attributes"] = []
        for name, each in sorted(vars(function).items()):
            if name not in _DERIVED:
                self._members.append((node, "attributes", name, each))
        self._members.append((node, "attributes", "__name__", function.__name__))

    def uses(self, step: Step) -> None:
        """Note what a step tells about names: of attributes, of keywords, of globals that are set."""
        if step.op in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            self._globals_set.add(step.arg)
        elif isinstance(step.arg, str) and step.op != VALUE and not VARIABLE_OPS.fullmatch(step.op):
            self._used.add(step.arg)
            self._dynamic |= step.arg in ("__dict__", "__getattribute__")
        elif isinstance(step.arg, tuple) and step.arg and all(isinstance(each, str) for each in step.arg):
            self._keywords |= set(step.arg)
            self._used |= set(step.arg)
        elif step.op == "CALL_FUNCTION_EX" and step.bits & 1:
            self._any_keyword = True

    def _name_parameters(self) -> None:
        """Keep the names of parameters that some call uses, and of globals that some function sets."""
        waiting = list(self.nodes)
        while waiting:
            data = waiting.pop()
            if isinstance(data, dict):
                if "positional" in data:
                    named = [[number, name] for number, name in enumerate(data["names"]) if self._is_keyword(name)]
                    data["named"] = named
                if str(data.get("name", "")).startswith("global ") and data["name"][7:] in self._globals_set:
                    data["set"] = data["name"]
                waiting.extend(data.values())
            elif isinstance(data, list):
                waiting.extend(data)

    def _is_keyword(self, name: str) -> bool:
        return self._any_keyword or name in self._keywords


# What is there for people alone, by its key in the data.
_FOR_PEOPLE = {"shown", "name", "names"}


def essence(data: Any) -> Any:
    """`data` without what is there for people to read."""
    if isinstance(data, dict):
        return {key: essence(each) for key, each in data.items() if key not in _FOR_PEOPLE}
    return [essence(each) for each in data] if isinstance(data, list) else data


def _reduced(thing: Any) -> Any:
    """How a copy of `thing` would be made, as pickle would be told; None if nobody could."""
    cls = type(thing)
    if _path(cls) == "pyspark.core.broadcast.Broadcast":
        return (cls, (thing.value,))
    if cls.__module__.startswith("py4j."):
        return None
    try:
        reducer = copyreg.dispatch_table.get(cls)
        return reducer(thing) if reducer is not None else thing.__reduce_ex__(4)
    except Exception:  # Code of others decides what it says.
        return None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return Named("nothing yet")


def _all_captured(function: types.FunctionType) -> list[tuple[str, Any]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [(name, _content(cell)) for name, cell in cells]


def _order(element: Any) -> tuple[str, str, str]:
    cls = type(element)
    plain = repr(element) if cls.__module__ == "builtins" and cls in (str, int, float, bool, bytes) else ""
    return (cls.__qualname__, str(getattr(element, "__qualname__", "")), plain)


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _directory(thing: Any) -> str | None:
    """The directory of the file that a function, a class or an object of a class comes from, unless it is installed."""
    if isinstance(thing, types.FunctionType):
        file = thing.__globals__.get("__file__")
    else:
        cls = thing if isinstance(thing, type) else type(thing)
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    path = PurePath(file) if isinstance(file, str) else PurePath()
    installed = {"site-packages", "lib", "lib64"} & set(path.parts) or len(path.parts) < 3
    return None if installed else str(path.parent)
