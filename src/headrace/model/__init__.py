"""What was declared: frozen values that know their file and line, without I/O."""

from headrace.model.project import (
    Counter,
    NamedSource,
    Project,
    PythonTransform,
    Query,
    SqlTransform,
    Table,
    Target,
    Transform,
    View,
    Watermark,
)
from headrace.model.trigger import TRIGGERS, AvailableNow, Continuous, Default, Every, Once, RealTime, Trigger
from headrace.units import Duration

__all__ = [
    "TRIGGERS",
    "AvailableNow",
    "Continuous",
    "Counter",
    "Default",
    "Duration",
    "Every",
    "NamedSource",
    "Once",
    "Project",
    "PythonTransform",
    "Query",
    "RealTime",
    "SqlTransform",
    "Table",
    "Target",
    "Transform",
    "Trigger",
    "View",
    "Watermark",
]
