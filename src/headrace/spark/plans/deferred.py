"""PySpark expressions at the top of a user's file, such as `AMOUNT = F.col("amount")`, kept until Spark runs.

PySpark makes each column, window and function type in the JVM, and refuses to without a session. A load has none, and
must need none: a session costs seconds, and which jars it needs is known only when the files have been run. So while a
project's files run, PySpark finds a stand-in for its context. It answers every call with a `Deferred`, which makes the
call when Spark first asks for the object behind it. Types in text are read by `headrace.spark.ddl`.

Seen with PySpark 4.2: every function of `pyspark.sql.functions` and `Window` reaches the JVM through
`SparkContext._active_spark_context`, and py4j passes on any object that has a `_get_object_id`. It can go when classic
PySpark builds its expressions in Python, as Spark Connect does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, cast

from headrace.spark import ddl

# The first module of PySpark after whose import all that is replaced here can be imported too.
_COMPLETE = "pyspark.sql.session"


class Deferred:
    """An object of the JVM that is made when it is first needed; attributes and calls of it are deferred as well."""

    __slots__ = ("_deferred_found", "_deferred_gateway", "_deferred_make")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._deferred_make = make
        self._deferred_found: Any = None
        self._deferred_gateway: Any = None

    def _deferred_object(self) -> Any:
        """The object; made again where another JVM has come since."""
        gateway = _context()._gateway
        if self._deferred_gateway is not gateway:
            self._deferred_found, self._deferred_gateway = self._deferred_make(), gateway
        return self._deferred_found

    def _get_object_id(self) -> str:
        """What py4j asks an argument of a call for."""
        return str(self._deferred_object()._get_object_id())

    def __getattr__(self, name: str) -> Any:
        # py4j looks for `Java` in what may be a Python object for the JVM to call.
        if name == "Java" or name.startswith("__"):
            raise AttributeError(name)
        if _is_live():
            return getattr(self._deferred_object(), name)
        return Deferred(lambda: getattr(self._deferred_object(), name))

    def __call__(self, *arguments: Any) -> Any:
        def call() -> Any:
            return self._deferred_object()(*map(_resolve, arguments))

        return call() if _is_live() else Deferred(call)

    def __str__(self) -> str:
        return str(self._deferred_object()) if _is_live() else "made when Spark runs"


def _resolve(argument: Any) -> Any:
    if isinstance(argument, Deferred):
        return argument._deferred_object()
    if isinstance(argument, (list, tuple)):
        return type(argument)(map(_resolve, argument))
    return argument


class _StandInContext:
    """What PySpark takes for its context. It is false, so that a file may still make a real one."""

    def __init__(self) -> None:
        self._jvm = Deferred(lambda: _context()._jvm)
        self._gateway = Deferred(lambda: _context()._gateway)

    def __bool__(self) -> bool:
        return False

    def _parse_ddl(self, text: str) -> Any:
        from pyspark.sql.types import _parse_datatype_json_value

        return _parse_datatype_json_value(ddl.data_type(text))


class _StandInSession:
    """What PySpark takes for the session, where it turns a type into one of the JVM."""

    def __init__(self, context: _StandInContext) -> None:
        self.sparkContext = self._sc = context
        self._jvm = context._jvm
        self._jsparkSession = Deferred(lambda: _session()._jsparkSession)


@contextmanager
def defer() -> Iterator[None]:
    """Defer what the code run inside asks PySpark for, unless a session is there; PySpark is not imported for it."""
    with ExitStack() as until:
        if _COMPLETE in sys.modules:
            _stand_in(until)
        else:
            arrival = _Arrival(lambda: _stand_in(until))
            sys.meta_path.insert(0, cast(Any, arrival))
            until.callback(sys.meta_path.remove, cast(Any, arrival))
        yield


class _Arrival:
    """Calls a function once PySpark has been imported."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self.notify = notify

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name != _COMPLETE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_notify(module: Any) -> None:
            run(module)
            self.notify()

        spec.loader.exec_module = run_and_notify  # type: ignore[method-assign]
        return spec


def _stand_in(until: ExitStack) -> None:
    from pyspark.core.context import SparkContext
    from pyspark.sql.session import SparkSession
    from pyspark.sql.udf import UserDefinedFunction

    if SparkContext._active_spark_context is not None:
        _without_session(until)
        return
    context = _StandInContext()
    session = _StandInSession(context)
    place: Any = SparkContext
    active, create = SparkSession.getActiveSession, SparkSession._getActiveSessionOrCreate
    build, begin, call = SparkSession.Builder.getOrCreate, SparkContext.getOrCreate, UserDefinedFunction.__call__

    def standing_in() -> bool:
        return place._active_spark_context is context

    def leave() -> None:
        if standing_in():
            place._active_spark_context = None

    def get_active(_: Any) -> Any:
        return None if standing_in() else active()

    def get_or_create(**settings: Any) -> Any:
        return session if standing_in() else create(**settings)

    def built(builder: Any) -> Any:
        leave()
        return build(builder)

    def begin_now(_: Any, conf: Any = None) -> Any:
        leave()
        return begin(conf)

    def call_later(function: Any, *columns: Any, **named: Any) -> Any:
        from pyspark.sql.classic.column import Column

        if not standing_in():
            return call(function, *columns, **named)
        return Column(cast(Any, Deferred(lambda: cast(Any, call(function, *columns, **named))._jc)))

    place._active_spark_context = context
    until.callback(leave)
    _replace(until, SparkSession, "getActiveSession", classmethod(get_active))
    _replace(until, SparkSession, "_getActiveSessionOrCreate", staticmethod(get_or_create))
    _replace(until, SparkSession.Builder, "getOrCreate", built)
    _replace(until, SparkContext, "getOrCreate", classmethod(begin_now))
    _replace(until, UserDefinedFunction, "__call__", call_later)


def _without_session(until: ExitStack) -> None:
    """Let a function for rows be declared as if there were no session.

    PySpark chooses between Arrow and pickle, which convert values otherwise, when a function is declared: by a setting
    of the session, or pickle without one. A command has none when it loads a project, and a notebook may have one.
    """
    from pyspark.sql.session import SparkSession

    holder: Any = SparkSession
    session = holder._instantiatedSession
    active, build = SparkSession.getActiveSession, SparkSession.Builder.getOrCreate

    def ask_session(ask: Callable[[], Any]) -> Any:
        """What the user's code asks for the session itself."""
        holder._instantiatedSession = session
        try:
            return ask()
        finally:
            holder._instantiatedSession = None

    _replace(until, SparkSession, "_instantiatedSession", None)
    _replace(until, SparkSession, "getActiveSession", classmethod(lambda _: ask_session(active)))
    _replace(until, SparkSession.Builder, "getOrCreate", lambda builder: ask_session(lambda: build(builder)))


def _replace(until: ExitStack, owner: Any, name: str, value: Any) -> None:
    until.callback(setattr, owner, name, vars(owner)[name])
    setattr(owner, name, value)


def _context() -> Any:
    from pyspark.core.context import SparkContext

    if not _is_live():
        from pyspark.errors import PySparkRuntimeError

        raise PySparkRuntimeError(errorClass="SESSION_OR_CONTEXT_NOT_EXISTS", messageParameters={})
    return SparkContext._active_spark_context


def _session() -> Any:
    from pyspark.sql.session import SparkSession

    return SparkSession._getActiveSessionOrCreate()


def _is_live() -> bool:
    """Whether a real context is there."""
    from pyspark.core.context import SparkContext

    return bool(SparkContext._active_spark_context)
