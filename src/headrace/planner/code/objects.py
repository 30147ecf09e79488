"""What functions, classes and objects are made of, as data."""

from __future__ import annotations

import ast
import copyreg
import dataclasses
import enum
import inspect
import re
import types
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, TypeAlias

from headrace.planner.code.listing import LoadedValues, list_tree
from headrace.planner.code.scope import Scope, Unknown, Uses, own_attribute
from headrace.spark.stream.broadcasts import refreshed_name
from headrace.spark.stream.counting import QueryCounter
from headrace.user_source import Definition, NoSource, captured_variables, definition

Data: TypeAlias = dict[str, Any]

NOT_SET = Unknown("a captured value is not set")
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
_TUPLE_PARTS = {"_make", "_replace", "_asdict", "_fields", "_field_defaults"}
# Modules whose metaclasses make nothing of type hints.
_PLAIN = ("builtins", "abc", "enum", "typing")
# PySpark chooses between Arrow and pickle by the session that there is when a function is declared; how values travel
# is not a part of what it means.
BY_SESSION = {101: 100, 301: 300}
# What PySpark attaches to a function that was made from it.
_DERIVED = {"_judf_placeholder", "_judtf_placeholder", "_returnType_placeholder", "_name", "__wrapped__"}
_RENAMED = {"enum.EnumMeta": "enum.EnumType"}
_PARAMS = ("init", "eq", "order", "unsafe_hash", "frozen")


class Objects:
    """Fills the nodes of what may hold itself.

    value: gives the data of what a node holds.
    owns: whether the module of a name belongs to the project; owned: whether a module does. shown: the lines of a
    function for people.
    """

    def __init__(
        self,
        value: Callable[[Any], Data],
        uses: Uses,
        owns: Callable[[Any], bool],
        owned: Callable[[types.ModuleType], bool],
        shown: Callable[[Definition], list[str]],
    ) -> None:
        self._value, self._uses, self._owns, self._owned, self._shown = value, uses, owns, owned, shown
        self._alive: list[Any] = []

    def fill(self, thing: Any, node: Data) -> None:
        """Write what `thing` is made of into `node`."""
        if isinstance(thing, types.FunctionType):
            self._function(thing, node)
        elif isinstance(thing, type):
            self._class(thing, node)
        elif isinstance(thing, types.ModuleType):
            node.update(kind="module", name=shown_module(thing.__name__), attributes=[])
            for name, value in sorted(vars(thing).items()):
                if not (name.startswith("__") and name.endswith("__")):
                    node["attributes"].append([name, self._value(value)])
        else:
            self._instance(thing, node)

    def _class(self, cls: type, node: Data) -> None:
        node.update(kind="class", name=f"{shown_module(cls.__module__)}.{cls.__qualname__}")
        node["bases"] = [self._value(base) for base in cls.__bases__ if base is not object]
        if type(cls) is not type:
            node["metaclass"] = self._value(type(cls))
        node["attributes"] = []
        members = dict(vars(cls))
        if isinstance(cls, enum.EnumMeta):
            enum_members: Mapping[str, Any] = cls.__members__
            node["members"] = [[name, self._value(member.value)] for name, member in enum_members.items()]
            members = {name: member for name, member in members.items() if name not in {*enum_members, *_ENUM_PARTS}}
        fields = members.pop("__dataclass_fields__", None)
        if isinstance(fields, dict):
            node["fields"] = [[name, self._value(_facts_of_field(member))] for name, member in fields.items()]
            params = members.get("__dataclass_params__")
            node["made by"] = [bool(getattr(params, name, False)) for name in _PARAMS]
        elif issubclass(cls, tuple) and "_fields" in members:
            names = members["_fields"]
            node["fields"] = [[name, self._value(members["_field_defaults"].get(name))] for name in names]
            members = {name: member for name, member in members.items() if name not in names}
        hints = own_attribute(cls, "__annotations__")
        if hints and type(cls).__module__ not in _PLAIN:  # A library's metaclass may make something of them.
            node["hints"] = [[name, self._value(hint)] for name, hint in hints.items()]
        inherited = {name for base in cls.__mro__[1:] if not self._owns(base.__module__) for name in vars(base)}
        for name, member in sorted(members.items()):
            special = name.startswith("__") and name.endswith("__")
            if name in _IGNORED or (name in ("__qualname__", "__hash__") and not callable(member)):
                continue
            made = (name.startswith("_") and name.endswith("_")) or name in _TUPLE_PARTS
            if made and ("fields" in node or "members" in node) and not self._is_written(member):
                continue  # The standard library makes it of the fields, in each version of Python another way.
            if special or name in inherited:
                node["attributes"].append([name, self._value(member)])
            else:
                self._uses.keep(node, name, member)
        self._uses.keep_own_names(node, cls)

    def _is_written(self, member: Any) -> bool:
        """Whether a member of a class is a function written for it."""
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        function = inspect.unwrap(function) if callable(function) else function
        if not isinstance(function, types.FunctionType):
            return False
        return function.__code__.co_filename != "<string>" and self._owns(function.__globals__.get("__name__"))

    def _instance(self, thing: Any, node: Data) -> None:
        cls = type(thing)
        node.update(kind="object", name=path_of(cls), **{"class": self._value(cls)})
        reduction = reduce(thing)
        if isinstance(reduction, str):
            node["arguments"] = [{"library": f"{getattr(thing, '__module__', None) or cls.__module__}.{reduction}"}]
            return
        if isinstance(thing, PurePath):
            node["arguments"] = [self._value(str(thing))]
            return
        self._alive.append(reduction)
        make, arguments, state, elements, pairs = (*reduction, None, None, None)[:5]
        if make not in (copyreg.__newobj__, cls):  # type: ignore[attr-defined]
            node["made by"] = self._value(make)
        node["arguments"] = [self._value(argument) for argument in arguments if argument is not cls]
        for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
            self._state(part, node)
        if elements is not None:
            node["elements"] = self._value(list(elements))
        if pairs is not None:
            node["entries"] = self._value(dict(pairs))

    def _state(self, state: Any, node: Data) -> None:
        if not isinstance(state, dict):
            if state is not None:
                node.setdefault("state", []).append(self._value(state))
            return
        node.setdefault("attributes", [])
        for name, value in sorted(state.items(), key=lambda pair: str(pair[0])):
            if name in _DERIVED:
                continue
            data = self._value(BY_SESSION.get(value, value) if name == "evalType" else value)
            if "not comparable" in data:
                self._uses.keep(node, name, value)
            else:
                node["attributes"].append([name, data])

    def _function(self, function: types.FunctionType, node: Data) -> None:
        code, module = function.__code__, function.__globals__
        node.update(kind="function", name=f"{shown_module(module.get('__name__'))}.{function.__qualname__}")
        node["defaults"] = [self._value(item) for item in function.__defaults__ or ()]
        by_name = sorted((function.__kwdefaults__ or {}).items())
        node["keyword defaults"] = [[name, self._value(item)] for name, item in by_name]
        captured = dict(captured_variables(function, NOT_SET))
        try:
            written = definition(code, module)
        except NoSource as error:
            node["code"] = {"not comparable": f"{error}"}
            node["captured"] = [[name, self._value(item)] for name, item in captured.items()]
        else:
            changed = {name for part in ast.walk(written.node) if isinstance(part, ast.Nonlocal) for name in part.names}
            unchanged = {name: value for name, value in captured.items() if name not in changed}
            values = LoadedValues(self._value, self._uses, Scope(module, unchanged, self._owned), code.co_freevars)
            node["code"] = {
                "function": list_tree(written, values),
                "values": values.entries,
                "source": self._shown(written),
            }
            if values.outer:
                node["captured"] = [self._value(captured[name]) for name in values.outer]
        node["attributes"] = []
        for name, item in sorted(vars(function).items()):
            if name not in _DERIVED:
                self._uses.keep(node, name, BY_SESSION.get(item, item) if name == "evalType" else item)
        self._uses.keep_own_names(node, function)


def reduce(thing: Any) -> Any:
    """Return its pickle reduction; None if it has none."""
    cls = type(thing)
    if path_of(cls) == "pyspark.core.broadcast.Broadcast":
        # One that is computed again while the query runs means the same whatever it holds, as a table does.
        name = refreshed_name(thing)
        return (cls, (thing.value,) if name is None else (f"refreshed broadcast {name}",))
    if cls is QueryCounter:
        return (cls, (thing.name,))
    if cls.__module__.startswith("py4j."):
        return None
    try:
        reducer = copyreg.dispatch_table.get(cls)
        return reducer(thing) if reducer is not None else thing.__reduce_ex__(4)
    except Exception:  # It may run any code.
        return None


def _facts_of_field(field: dataclasses.Field[Any]) -> dict[str, Any]:
    """Return what decides the methods that a dataclass makes for a field."""
    facts = {"metadata": dict(field.metadata), "in": [field.init, field.compare, bool(field.hash), bool(field.kw_only)]}
    for name in ("default", "default_factory"):
        if getattr(field, name) is not dataclasses.MISSING:
            facts[name] = getattr(field, name)
    return facts


def shown_module(name: Any) -> str:
    """Return the name of a module as its users know it: a project's modules are loaded under numbered names."""
    return re.sub(r"^headrace_project_\d+_", "", str(name))


def path_of(cls: type) -> str:
    """Return the import path of a class, as in the newest version of Python."""
    path = f"{cls.__module__}.{cls.__qualname__}"
    return _RENAMED.get(path, path.replace("pathlib._local.", "pathlib."))
